//! Functions that install signal handlers. A handler may write to the same connection as the thread
//! that it interrupts, so from then on signals wait for that time.

use std::ffi::c_int;

use libc::sighandler_t;

use super::guard;
use crate::sys::{Directly, FAULTS, Handling, OF_INSTRUCTIONS, defer, faults_are_handled, restarts};
use crate::{gather, real, waiting};

/// Prepares that the program handles a signal, unless it is one of its own instructions.
fn before_handling(signal: c_int, handler: sighandler_t) {
    let is_handler = handler != libc::SIG_DFL && handler != libc::SIG_IGN;
    if is_handler && FAULTS.contains(&signal) {
        faults_are_handled();
    }
    if is_handler && !OF_INSTRUCTIONS.contains(&signal) {
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
    let known = Handling::of(signal);
    // SAFETY: as the caller promises.
    let mut changed = (!action.is_null()).then(|| unsafe { action.read() });
    let is_deferred = changed.as_mut().is_some_and(|action| {
        before_handling(signal, action.sa_sigaction);
        defer(signal, action)
    });
    let action = changed.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: as the caller promises.
    let result = unsafe { real::sigaction(signal, action, before) };
    if result != 0 && is_deferred {
        known.store(signal);
    }
    if result == 0 && !before.is_null() {
        // SAFETY: as the caller promises; the real function has stored it.
        known.show(unsafe { &mut *before });
    }
    if !action.is_null() {
        waiting::handlers_changed();
    }
    result
}

/// `siginterrupt(3)`.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn siginterrupt(signal: c_int, ends_calls: c_int) -> c_int {
    // SAFETY: takes numbers only.
    let result = unsafe { real::siginterrupt(signal, ends_calls) };
    if result == 0 {
        restarts(signal, ends_calls == 0);
        waiting::handlers_changed();
    }
    result
}

/// Defers a handler that the C library has just installed.
fn defer_installed(signal: c_int) {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: only asks; the structure is this frame's.
    if unsafe { real::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) } != 0 {
        return;
    }
    // SAFETY: zeroed, then filled by the call.
    let mut action = unsafe { action.assume_init() };
    if defer(signal, &mut action) {
        // SAFETY: the action that the kernel has, with the library's handler.
        unsafe { real::sigaction(signal, &raw const action, std::ptr::null_mut()) };
    }
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
                let known = Handling::of(signal);
                // Until the handler is deferred, the kernel calls it directly.
                let directly = Directly::begin();
                // SAFETY: as the caller promises. `SIG_ERR` is -1.
                let before = unsafe { real::$name(signal, handler) }.cast_unsigned();
                defer_installed(signal);
                drop(directly);
                waiting::handlers_changed();
                known.address(before)
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
