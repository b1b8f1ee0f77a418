//! `poll` and `select`: a listener is readable if a connection of either kind is waiting.

use std::ffi::{c_int, c_ulong};
use std::mem::ManuallyDrop;

use libc::{fd_set, nfds_t, pollfd, sigset_t, size_t, timespec, timeval};
use rustix::process::{Resource, getrlimit};

use super::guard;
use crate::listener::arm;
use crate::lookup::listener;
use crate::readiness::{Polled, READABLE, Selected, limited, words};
use crate::real;
use crate::state::TABLE;

/// The VMCI socket of a listener that the program waits for now.
fn vmci_of(fd: c_int) -> Option<c_int> {
    arm(fd, listener(fd)?).vmci
}

/// Tells whether the kernel refuses so many descriptors (`EINVAL`) and reads none of them.
fn is_refused(count: nfds_t) -> bool {
    /// The usual limit of open files. Asking for the limit only beyond it saves a system call.
    const USUAL: nfds_t = 1024;
    count > USUAL && getrlimit(Resource::Nofile).current.is_some_and(|limit| count > limit)
}

/// Calls a function of the kind of `poll` with the VMCI sockets of the listeners among `polled`.
///
/// # Safety
/// `polled` points to `count` structures.
unsafe fn poll_both(
    polled: *mut pollfd,
    count: nfds_t,
    real: impl FnOnce(*mut pollfd, nfds_t) -> c_int,
) -> c_int {
    // SAFETY: as the caller promises.
    let all = || unsafe { std::slice::from_raw_parts_mut(polled, count as usize) };
    let waits = |one: &pollfd| one.events & READABLE != 0 && TABLE.may_listen(one.fd);
    if polled.is_null() || !TABLE.has_listeners() || is_refused(count) || !all().iter().any(waits) {
        return real(polled, count);
    }
    // Without a destructor, because the thread may be cancelled in the real function.
    let Some(both) = guard(None, || Some(Polled::new(all(), &vmci_of))) else { return real(polled, count) };
    let mut both = ManuallyDrop::new(both);
    let result = real(both.all().as_mut_ptr(), both.all().len() as nfds_t);
    let result = if result < 0 { result } else { both.give_back(all()) };
    drop(ManuallyDrop::into_inner(both));
    result
}

/// `poll(2)`.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn poll(polled: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { poll_both(polled, count, |polled, count| real::poll(polled, count, timeout)) }
}

/// `poll(2)` of programs that check the sizes of buffers (`_FORTIFY_SOURCE`).
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn __poll_chk(
    polled: *mut pollfd,
    count: nfds_t,
    timeout: c_int,
    size: size_t,
) -> c_int {
    if size / size_of::<pollfd>() < count as usize {
        std::process::abort();
    }
    // SAFETY: as the caller promises.
    unsafe { poll(polled, count, timeout) }
}

/// `ppoll(2)`.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn ppoll(
    polled: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    signals: *const sigset_t,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { poll_both(polled, count, |polled, count| real::ppoll(polled, count, timeout, signals)) }
}

/// `ppoll(2)` of programs that check the sizes of buffers (`_FORTIFY_SOURCE`).
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn __ppoll_chk(
    polled: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    signals: *const sigset_t,
    size: size_t,
) -> c_int {
    if size / size_of::<pollfd>() < count as usize {
        std::process::abort();
    }
    // SAFETY: as the caller promises.
    unsafe { ppoll(polled, count, timeout, signals) }
}

/// Calls a function of the kind of `select` with the VMCI sockets of the listeners in `reading`.
///
/// # Safety
/// Each set is null or has bits for all descriptors below `count`, as far as the process's table of
/// descriptors goes.
unsafe fn select_both(
    count: c_int,
    [reading, writing, failing]: [*mut fd_set; 3],
    real: impl FnOnce(c_int, [*mut fd_set; 3]) -> c_int,
) -> c_int {
    let asked = count;
    if !TABLE.has_listeners() {
        return real(count, [reading, writing, failing]);
    }
    let Some(count) = guard(None, || limited(count)) else {
        return real(asked, [reading, writing, failing]);
    };
    let bits = |set: *mut fd_set| {
        if set.is_null() {
            return None;
        }
        // SAFETY: as the caller promises; a set is an array of such words.
        Some(unsafe { std::slice::from_raw_parts_mut(set.cast::<c_ulong>(), words(count)) })
    };
    let has_listener = bits(reading)
        .is_some_and(|reading| (0..count).any(|fd| TABLE.may_listen(fd) && Selected::has(reading, fd)));
    if !has_listener {
        return real(asked, [reading, writing, failing]);
    }
    // Without a destructor, because the thread may be cancelled in the real function.
    let sets = || [bits(reading), bits(writing), bits(failing)];
    let Some(both) = guard(None, || Some(Selected::new(count, &sets(), &vmci_of))) else {
        return real(asked, [reading, writing, failing]);
    };
    let mut both = ManuallyDrop::new(both);
    let pointers = both.sets().map(|set| set.map_or(std::ptr::null_mut(), |set| set.as_mut_ptr().cast()));
    let result = real(both.count(), pointers);
    let result = if result < 0 { result } else { both.give_back(&mut sets()) };
    drop(ManuallyDrop::into_inner(both));
    result
}

/// `select(2)`.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn select(
    count: c_int,
    reading: *mut fd_set,
    writing: *mut fd_set,
    failing: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        select_both(count, [reading, writing, failing], |count, [reading, writing, failing]| {
            real::select(count, reading, writing, failing, timeout)
        })
    }
}

/// `pselect(2)`.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn pselect(
    count: c_int,
    reading: *mut fd_set,
    writing: *mut fd_set,
    failing: *mut fd_set,
    timeout: *const timespec,
    signals: *const sigset_t,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        select_both(count, [reading, writing, failing], |count, [reading, writing, failing]| {
            real::pselect(count, reading, writing, failing, timeout, signals)
        })
    }
}
