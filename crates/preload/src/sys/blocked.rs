//! Signals that wait while the library changes what a handler may use, too.
#![allow(unsafe_code, reason = "a system call")]

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;

use libc::c_long;

use super::faults::OF_INSTRUCTIONS;

/// True once the program has a signal handler.
static HANDLERS: AtomicBool = AtomicBool::new(false);

/// Records that the program installs a signal handler. Returns false if it had one before.
pub(crate) fn first_handler() -> bool {
    !HANDLERS.swap(true, SeqCst)
}

/// Size of the kernel's set of signals.
const SIZE: usize = size_of::<u64>();

/// While it exists, no handler of the program runs in the calling thread, except for signals that
/// come from the thread's own instructions: the kernel ends a program that blocks those. The two
/// signals of the C library's threads stay as well: a thread that blocks the second one stops
/// `setuid` in all others.
pub(crate) struct Blocked(u64);

/// All signals but these.
pub(super) const fn all() -> u64 {
    // The two signals of the C library's threads.
    let (mut bits, mut place) = (!(1u64 << 31 | 1 << 32), 0);
    while place < OF_INSTRUCTIONS.len() {
        bits &= !(1 << (OF_INSTRUCTIONS[place] - 1));
        place += 1;
    }
    bits
}

unsafe extern "C-unwind" {
    /// The C library's `syscall`. A signal comes as soon as the mask allows it, and its handler may
    /// end the thread by unwinding (`pthread_exit`).
    fn syscall(number: c_long, ...) -> c_long;
}

fn set_mask(how: libc::c_int, mask: u64) -> u64 {
    let mut before = 0u64;
    // SAFETY: both sets are this frame's and have the size that is passed. The call fails only for
    // wrong arguments.
    let _: c_long = unsafe { syscall(libc::SYS_rt_sigprocmask, how, &raw const mask, &raw mut before, SIZE) };
    before
}

/// Tells whether the program has installed a signal handler.
pub(super) fn has_handlers() -> bool {
    HANDLERS.load(SeqCst)
}

/// Blocks all signals that [`Blocked`] blocks.
pub(super) fn block_all() {
    set_mask(libc::SIG_BLOCK, all());
}

/// Blocks exactly these signals.
pub(super) fn set_all(mask: u64) {
    set_mask(libc::SIG_SETMASK, mask);
}

/// The signals that are blocked.
#[cfg(test)]
pub(super) fn mask() -> u64 {
    set_mask(libc::SIG_BLOCK, 0)
}

impl Blocked {
    /// Begins.
    pub(crate) fn begin() -> Self {
        Self(set_mask(libc::SIG_BLOCK, all()))
    }

    /// Begins if the program has signal handlers.
    pub(crate) fn if_handled() -> Option<Self> {
        HANDLERS.load(SeqCst).then(Self::begin)
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        set_mask(libc::SIG_SETMASK, self.0);
    }
}
