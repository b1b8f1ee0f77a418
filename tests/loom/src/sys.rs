//! As `sys` of `taut_fabric`.

mod atomic {
    pub(super) use loom::sync::atomic::Ordering::{Relaxed, SeqCst};
    pub(super) use loom::sync::atomic::{AtomicBool, fence};
}
#[path = "../../../crates/fabric/src/sys/doze.rs"]
pub(crate) mod doze;
