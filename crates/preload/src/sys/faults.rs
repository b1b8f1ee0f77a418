//! Whether the program handles faults in its own memory. Then a handler may leave the function that
//! has met the fault by a jump, so the library touches the program's memory before it takes a lock.
#![allow(unsafe_code, reason = "asks for the handlers of signals")]

use std::mem::MaybeUninit;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// The signals that come from a thread's own instructions. The kernel ends a program that blocks
/// one of them when it comes.
pub(crate) const OF_INSTRUCTIONS: [libc::c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// Those among them that are faults in the program's memory.
pub(crate) const FAULTS: [libc::c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

static ARE_HANDLED: AtomicBool = AtomicBool::new(false);

/// Records that the program handles such a signal.
pub(crate) fn faults_are_handled() {
    ARE_HANDLED.store(true, Relaxed);
}

/// Tells whether the program handles such a signal. Costs one load.
#[inline]
pub(crate) fn are_faults_handled() -> bool {
    ARE_HANDLED.load(Relaxed)
}

/// Looks for handlers that were installed before this library was loaded.
pub(crate) fn look_for_fault_handlers() {
    for signal in FAULTS {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: only asks; the structure is this frame's.
        if unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) } != 0 {
            continue;
        }
        // SAFETY: zeroed, then filled by the call.
        let handler = unsafe { action.assume_init() }.sa_sigaction;
        if handler != libc::SIG_DFL && handler != libc::SIG_IGN {
            faults_are_handled();
        }
    }
}
