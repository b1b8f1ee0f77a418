//! The heap of this process.
#![allow(unsafe_code)]

use nix::libc;

/// Has all threads share one heap.
///
/// By default the C library gives each thread a heap of its own, up to eight for each pCPU. Each of
/// them grows for a while until it holds what its threads need at most, so a daemon with 20 threads
/// grows for 20 minutes and more. Nothing here allocates often enough to wait for others.
pub(crate) fn share() {
    // SAFETY: the call has no requirements: it takes two numbers. It comes before any other thread
    // is started, so that none has a heap yet.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
}
