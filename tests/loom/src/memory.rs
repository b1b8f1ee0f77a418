//! As `memory` of `taut_virtq`.

mod atomic {
    pub(super) use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release};
    pub(super) use loom::sync::atomic::{AtomicU32, AtomicUsize, fence};
}
#[path = "../../../crates/virtq/src/memory/extent.rs"]
mod extent;
#[cfg(test)]
mod extent_tests;
