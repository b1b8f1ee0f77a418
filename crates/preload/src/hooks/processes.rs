//! Functions that end the process, replace its program or start others. Before the C library's
//! function runs, gathered bytes are sent, and connections that the next program may inherit leave
//! their channels.

use std::ffi::{c_char, c_int, c_void};

use super::{before_exec, before_sharing_all, guard};
use crate::{gather, real, rings, sys};

macro_rules! after {
    ($prepare:ident: $($(#[$about:meta])* $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        $(
            $(#[$about])*
            ///
            /// # Safety
            /// As the C library's.
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub(crate) unsafe extern "C-unwind" fn $name($($argument: $type),*) -> $result {
                let prepared = $prepare();
                // SAFETY: as the caller promises.
                let result = unsafe { real::$name($($argument),*) };
                rings::goes_on(prepared);
                result
            }
        )*
    };
}

after! {
    before_exec:
    /// `execve(2)`.
    execve(path: *const c_char, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    /// `execv(3)`.
    execv(path: *const c_char, arguments: *const *const c_char) -> c_int;
    /// `execvp(3)`.
    execvp(file: *const c_char, arguments: *const *const c_char) -> c_int;
    /// `execvpe(3)`.
    execvpe(file: *const c_char, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    /// `fexecve(3)`.
    fexecve(fd: c_int, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    /// `execveat(2)`.
    execveat(
        folder: c_int,
        path: *const c_char,
        arguments: *const *const c_char,
        environment: *const *const c_char,
        flags: c_int
    ) -> c_int;
}

macro_rules! spawns {
    ($($(#[$about:meta])* $name:ident;)*) => {
        $(
            $(#[$about])*
            ///
            /// # Safety
            /// As the C library's.
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub(crate) unsafe extern "C-unwind" fn $name(
                pid: *mut libc::pid_t,
                path: *const c_char,
                actions: *const libc::posix_spawn_file_actions_t,
                attributes: *const libc::posix_spawnattr_t,
                arguments: *const *mut c_char,
                environment: *const *mut c_char,
            ) -> c_int {
                before_sharing_all();
                if !actions.is_null() && rings::is_on() {
                    // They may give any descriptor to the next program.
                    guard((), || rings::leave_if(false));
                }
                // SAFETY: as the caller promises.
                unsafe { real::$name(pid, path, actions, attributes, arguments, environment) }
            }
        )*
    };
}

spawns! {
    /// `posix_spawn(3)`.
    posix_spawn;
    /// `posix_spawnp(3)`.
    posix_spawnp;
}

after! {
    before_sharing_all:
    /// `system(3)`.
    system(command: *const c_char) -> c_int;
}

/// `popen(3)`.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn popen(command: *const c_char, kind: *const c_char) -> *mut c_void {
    before_sharing_all();
    // SAFETY: as the caller promises.
    match unsafe { real::popen(command, kind) } {
        -1 => std::ptr::null_mut(),
        stream => std::ptr::with_exposed_provenance_mut(stream.cast_unsigned()),
    }
}

/// Sends gathered bytes before the process ends.
pub(super) fn ends() {
    rings::is_over();
    if gather::is_on() {
        guard((), gather::ends);
    }
}

/// `_exit(2)`.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn _exit(status: c_int) -> ! {
    ends();
    // SAFETY: as the caller promises.
    unsafe { real::_exit(status) };
    // The function is missing.
    sys::exit(status)
}

/// `_Exit(3)`.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[allow(non_snake_case, reason = "the name of the function")]
pub(crate) unsafe extern "C" fn _Exit(status: c_int) -> ! {
    ends();
    // SAFETY: as the caller promises.
    unsafe { real::_Exit(status) };
    // The function is missing.
    sys::exit(status)
}
