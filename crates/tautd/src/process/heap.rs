//! The heap of this process: one for all threads, which asks for huge pages.
#![allow(unsafe_code)]

use std::hint::black_box;

use super::huge_pages;

/// Bytes of address space by which the heap grows. They take memory only once they are used.
///
/// The heap of a daemon with 200 VMs and 500 ports takes 13 MiB.
const STEP: libc::c_int = 64 << 20;

/// Bytes by which the heap grows where a limit leaves no room for [`STEP`]. The C library has the
/// same by default.
const SMALL_STEP: libc::c_int = 128 << 10;

/// Unused bytes at the end of the heap from which all but [`STEP`] of them go back to the kernel.
const TRIMMED: libc::c_int = 2 * STEP;

/// Bytes from which an allocation that does not fit into the heap gets pages of its own, which go
/// back to the kernel with it. It exceeds what [`share`] allocates, so that this grows the heap.
const LARGE: libc::c_int = 4 << 20;

/// More bytes than are free at the end of the heap before the first step.
const FIRST_TOP: usize = 256 << 10;

/// Has all threads share one heap, and asks for huge pages for its first [`STEP`] bytes. To be
/// called before any other thread is started.
///
/// By default the C library gives each thread a heap of its own, up to eight for each pCPU. Each of
/// them grows for a while until it holds what its threads need at most, so a daemon with 20 threads
/// grows for 20 minutes and more. Nothing here allocates often enough to wait for others.
///
/// The daemon uses most of its memory once a second. On a virtual machine the first use of a page
/// after such a rest may take 20 us and more. One huge page replaces 512 of them.
pub(crate) fn share() {
    // SAFETY: the calls change no memory of this program. They are not safe beside other threads
    // (glibc's manual: MT-Unsafe), and the caller has not started any.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_TOP_PAD, STEP);
        libc::mallopt(libc::M_TRIM_THRESHOLD, TRIMMED);
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
    }
    let before = end();
    let first = before.next_multiple_of(huge_pages::SIZE);
    // Fills the heap up to its first huge page and a little beyond, and is never freed or used.
    // Allocations after it come from the addresses for which huge pages are asked. `black_box`
    // keeps the compiler from leaving out an allocation that is not used.
    // SAFETY: the call has no requirements.
    let filler = black_box(unsafe { libc::malloc(first - before + FIRST_TOP) });
    if filler.is_null() {
        // A limit leaves no room for a step: RLIMIT_DATA, RLIMIT_AS or strict overcommit.
        // SAFETY: as above.
        unsafe { libc::mallopt(libc::M_TOP_PAD, SMALL_STEP) };
        return;
    }
    huge_pages::prefer(first..end());
}

/// Returns the address at which the heap ends.
fn end() -> usize {
    // SAFETY: an increment of zero moves no memory. The caller has started no thread that could
    // move the end meanwhile.
    unsafe { libc::sbrk(0) }.addr()
}
