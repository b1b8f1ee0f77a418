//! Functions that install signal handlers. A handler may write to the same connection as the thread
//! that it interrupts, so from then on signals are blocked for that time.

use std::ffi::c_int;

use libc::sighandler_t;

use super::guard;
use crate::{gather, real, waiting};

/// Prepares that the program handles a signal, unless it is one of its own instructions.
fn before_handling(signal: c_int, handler: sighandler_t) {
    let own = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];
    if !own.contains(&signal) && handler != libc::SIG_DFL && handler != libc::SIG_IGN {
        if gather::is_on() {
            guard((), gather::handles_signals);
        } else {
            gather::handles_signals();
        }
    }
}

/// `sigaction(2)`.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn sigaction(
    signal: c_int,
    action: *const libc::sigaction,
    before: *mut libc::sigaction,
) -> c_int {
    if !action.is_null() {
        // SAFETY: as the caller promises.
        before_handling(signal, unsafe { (*action).sa_sigaction });
    }
    // SAFETY: as the caller promises.
    let result = unsafe { real::sigaction(signal, action, before) };
    if !action.is_null() {
        waiting::handlers_changed();
    }
    result
}

macro_rules! handlers {
    ($($(#[$about:meta])* $name:ident;)*) => {
        $(
            $(#[$about])*
            ///
            /// # Safety
            /// As the C library's.
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub(crate) unsafe extern "C" fn $name(signal: c_int, handler: sighandler_t) -> sighandler_t {
                before_handling(signal, handler);
                // SAFETY: as the caller promises. `SIG_ERR` is -1.
                let before = unsafe { real::$name(signal, handler) }.cast_unsigned();
                waiting::handlers_changed();
                before
            }
        )*
    };
}

handlers! {
    /// `signal(2)`.
    signal;
    /// `bsd_signal(3)`.
    bsd_signal;
    /// `sysv_signal(3)`.
    sysv_signal;
    /// The name that C programs have for `signal` with the semantics of System V.
    __sysv_signal;
    /// `ssignal(3)`.
    ssignal;
    /// `sigset(3)`.
    sigset;
}
