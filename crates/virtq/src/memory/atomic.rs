//! Atomics of the files that `tests/loom` also compiles, with those of loom in their place.

pub(super) use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
pub(super) use std::sync::atomic::{AtomicU32, AtomicUsize, fence};
