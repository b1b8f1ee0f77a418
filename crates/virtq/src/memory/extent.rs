//! Base and length of a mapping, which one thread changes while others, even in a signal handler,
//! read both together. `tests/loom` tries every order of the steps.

use super::atomic::{Acquire, AtomicU32, AtomicUsize, Relaxed, Release, fence};

/// Base and length of a mapping, or of none.
#[derive(Debug)]
pub(super) struct Extent {
    /// Odd while base and length change.
    pub(super) version: AtomicU32,
    /// Address of the first byte; 0 if there is no mapping.
    pub(super) base: AtomicUsize,
    /// Length in bytes.
    pub(super) len: AtomicUsize,
}

impl Extent {
    /// Changes base and length. One thread at a time may do so.
    pub(super) fn change(&self, base: usize, len: usize) {
        let version = self.version.load(Relaxed);
        self.version.store(version.wrapping_add(1), Relaxed);
        fence(Release);
        self.base.store(base, Relaxed);
        self.len.store(len, Relaxed);
        self.version.store(version.wrapping_add(2), Release);
    }

    /// Base and length if they contain the address.
    pub(super) fn around(&self, address: usize) -> Option<(usize, usize)> {
        let version = self.version.load(Acquire);
        let (base, len) = (self.base.load(Relaxed), self.len.load(Relaxed));
        fence(Acquire);
        // An extent that changes meanwhile is not the one of the address: whoever accesses a
        // mapping keeps it alive.
        let stable = version.is_multiple_of(2) && self.version.load(Relaxed) == version;
        (stable && base != 0 && address.wrapping_sub(base) < len).then_some((base, len))
    }
}
