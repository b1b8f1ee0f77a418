//! As `ring` of `taut_queue_pair`.

mod atomic {
    pub(super) use loom::sync::atomic::Ordering::{Relaxed, SeqCst};
    pub(super) use loom::sync::atomic::{AtomicU32, fence};
}
#[allow(dead_code, reason = "the ends are not here")]
#[path = "../../../crates/queue_pair/src/ring/wait.rs"]
mod wait;
#[cfg(test)]
mod wait_tests;
