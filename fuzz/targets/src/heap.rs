//! The allocator of fuzz programs and tests: that of the system, with a count per thread.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    /// Bytes that this thread has allocated and not freed, and the most since the last mark. Other
    /// threads may free what this one has allocated, so the count can be negative.
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

/// A moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark(isize);

/// Marks this moment.
pub(crate) fn mark() -> Mark {
    MOST.set(LIVE.get());
    Mark(LIVE.get())
}

/// The most bytes that this thread has had since the mark, beyond those that it had then.
pub(crate) fn most_since(mark: Mark) -> usize {
    MOST.get().saturating_sub(mark.0).max(0).cast_unsigned()
}

fn count(change: isize) {
    let live = LIVE.get() + change;
    LIVE.set(live);
    MOST.set(MOST.get().max(live));
}

// SAFETY: every call goes to the system's allocator unchanged. Counting allocates nothing: the
// cells have constant initial values and no destructors.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: the caller keeps the same contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(-layout.size().cast_signed());
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // For a moment both blocks may exist.
        count(size.cast_signed());
        count(-layout.size().cast_signed());
        // SAFETY: as above.
        unsafe { System.realloc(block, layout, size) }
    }
}
