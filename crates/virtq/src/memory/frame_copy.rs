//! Copies of a frame's bytes that are faster than a call of `memmove`.
#![allow(unsafe_code)]

use super::prefetch;

/// Copies `len` bytes, in pieces of a cache line if there are that many. The first piece begins at
/// `to`; later pieces begin where the lines of the target do, so that no store touches two lines.
/// The last piece overlaps the one before. Each piece also prefetches the same line of `next` for
/// writing.
///
/// # Safety
/// As for [`std::ptr::copy`]. If source and target overlap, overlapping bytes may have either
/// value.
#[inline(always)]
pub(super) unsafe fn rest(from: *const u8, to: *mut u8, len: usize, next: *const u8) {
    const LINE: usize = prefetch::LINE;
    if len < LINE {
        // SAFETY: the caller's contract.
        unsafe { std::ptr::copy(from, to, len) };
        return;
    }
    // SAFETY: the caller's contract; `len` is at least a line.
    unsafe { std::ptr::copy(from, to, LINE) };
    let mut at = LINE - to.addr() % LINE;
    while at + LINE <= len {
        // SAFETY: the caller's contract; this piece ends at or before `len`.
        unsafe { std::ptr::copy(from.add(at), to.add(at), LINE) };
        // The buffers of both ends together are as large as a core's cache. Without the prefetch, a
        // store would wait for its line from the next cache.
        prefetch::for_write(next.wrapping_add(at));
        at += LINE;
    }
    if at < len {
        // SAFETY: the caller's contract; `len` is at least a line.
        unsafe { std::ptr::copy(from.add(len - LINE), to.add(len - LINE), LINE) };
    }
}

/// Copies `len` bytes. A copy of `usual` bytes needs no call.
///
/// # Safety
/// As for [`std::ptr::copy`].
#[inline(always)]
pub(super) unsafe fn short(from: *const u8, to: *mut u8, len: usize, usual: usize) {
    // SAFETY: the caller's contract.
    unsafe {
        if len == usual {
            std::ptr::copy(from, to, usual);
        } else {
            std::ptr::copy(from, to, len);
        }
    }
}
