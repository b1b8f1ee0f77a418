//! Copies of a frame's bytes that are faster than a call of `memmove`.
#![allow(unsafe_code)]

use super::prefetch;

/// Copies `len` bytes, by whole lines if there is one: the first wherever it begins, those behind it where the target's lines do,
/// so that no store touches two; the last overlaps the one before. With each of them, the same line of `next` is asked for, to be
/// written soon.
///
/// # Safety
/// As for [`std::ptr::copy`], but that bytes which overlap may arrive as either.
#[inline(always)]
pub(super) unsafe fn rest(from: *const u8, to: *mut u8, len: usize, next: *const u8) {
    const LINE: usize = prefetch::LINE;
    if len < LINE {
        // SAFETY: the caller's.
        unsafe { std::ptr::copy(from, to, len) };
        return;
    }
    // SAFETY: the caller's; `len` is at least a line.
    unsafe { std::ptr::copy(from, to, LINE) };
    let mut at = LINE - to.addr() % LINE;
    while at + LINE <= len {
        // SAFETY: the caller's; this piece ends at or before `len`.
        unsafe { std::ptr::copy(from.add(at), to.add(at), LINE) };
        // The ends' buffers together are as large as a core's cache: by itself, a store would wait for its line from the next one.
        prefetch::for_write(next.wrapping_add(at));
        at += LINE;
    }
    if at < len {
        // SAFETY: the caller's; `len` is at least a line.
        unsafe { std::ptr::copy(from.add(len - LINE), to.add(len - LINE), LINE) };
    }
}

/// Copies `len` bytes; `usual` is the length that is copied without a call.
///
/// # Safety
/// As for [`std::ptr::copy`].
#[inline(always)]
pub(super) unsafe fn short(from: *const u8, to: *mut u8, len: usize, usual: usize) {
    // SAFETY: the caller's.
    unsafe {
        if len == usual {
            std::ptr::copy(from, to, usual);
        } else {
            std::ptr::copy(from, to, len);
        }
    }
}
