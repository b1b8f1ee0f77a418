//! Atomics of the files that `tests/loom` also compiles, with those of loom in their place.

pub(super) use std::sync::atomic::Ordering::{Relaxed, SeqCst};
pub(super) use std::sync::atomic::{AtomicBool, fence};
