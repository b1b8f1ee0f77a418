//! `poll` and its kind.

use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::time::{Duration, Instant};

use libc::{nfds_t, pollfd, sigset_t, size_t, timespec};
use rustix::io::Errno;

use super::super::{fail, guard};
use super::{WaitLimit, duration, is_refused, milliseconds, spec, vmci_known, vmci_of};
use crate::readiness::{Polled, READABLE};
use crate::rings::{self, Polling};
use crate::state::TABLE;
use crate::sys::{Handled, briefly};
use crate::{datagram, gather, real};

/// Calls a function of the kind of `poll` with the VMCI sockets of the listeners among `polled`,
/// and with the rings of connections. `limit` is the program's. `real` gets another time for calls
/// that are repeated.
///
/// # Safety
/// `polled` points to `count` structures.
pub(super) unsafe fn poll_both(
    polled: *mut pollfd,
    count: nfds_t,
    limit: WaitLimit,
    real: impl Fn(*mut pollfd, nfds_t, Option<timespec>) -> c_int,
) -> c_int {
    if datagram::may_be_inherited() && !polled.is_null() && !is_refused(count) {
        // SAFETY: as the caller promises.
        let all = unsafe { std::slice::from_raw_parts(polled, count as usize) };
        // Starts the carriers of those that the parent opened.
        guard((), || all.iter().for_each(|one| _ = datagram::find(one.fd)));
    }
    if polled.is_null() || !gather::is_on() || is_refused(count) {
        // SAFETY: as the caller promises.
        return unsafe { poll_rings(polled, count, limit, real) };
    }
    // SAFETY: as the caller promises.
    unsafe { count_waits(polled, count, true) };
    guard((), gather::flush_all);
    // SAFETY: as the caller promises.
    let result = unsafe { poll_rings(polled, count, limit, real) };
    // SAFETY: as the caller promises.
    unsafe { count_waits(polled, count, false) };
    result
}

/// Counts a thread that waits for descriptors to be read, or no longer does.
///
/// # Safety
/// `polled` points to `count` structures.
unsafe fn count_waits(polled: *const pollfd, count: nfds_t, begins: bool) {
    // SAFETY: as the caller promises.
    let all = unsafe { std::slice::from_raw_parts(polled, count as usize) };
    for one in all.iter().filter(|one| one.events & READABLE != 0) {
        TABLE.waits(one.fd, begins);
    }
}

/// Polls with the rings of connections in place of their sockets. Each round polls what belongs to
/// the rings.
///
/// # Safety
/// As for [`poll_both`].
unsafe fn poll_rings(
    polled: *mut pollfd,
    count: nfds_t,
    WaitLimit { time, has_signals }: WaitLimit,
    real: impl Fn(*mut pollfd, nfds_t, Option<timespec>) -> c_int,
) -> c_int {
    // SAFETY: as the caller promises.
    let all = || unsafe { std::slice::from_raw_parts_mut(polled, count as usize) };
    let may_concern = !polled.is_null() && rings::is_on() && !is_refused(count);
    if may_concern && rings::has_instance(all().iter().map(|one| one.fd)) {
        guard((), || rings::instances_watched(all().iter().map(|one| one.fd)));
    }
    if !may_concern || !Polling::concerns(all()) {
        // SAFETY: as the caller promises.
        return unsafe { poll_listeners(polled, count, true, |polled, count| real(polled, count, None)) };
    }
    // SAFETY: takes nothing. This function has no destructors here.
    unsafe { real::pthread_testcancel() };
    if let Some(count) = briefly(None, || Polling::plainly(all())) {
        return count;
    }
    let before = Handled::until_now();
    let waits = !time.is_some_and(|time| time.is_zero());
    if let Some(count) = guard(None, || Polling::at_once(all(), waits)) {
        return count;
    }
    let until = time.and_then(|time| Instant::now().checked_add(time));
    if waits {
        guard((), || Polling::spin(all(), until));
    }
    loop {
        let round = guard(None, || Some(Polling::new(all(), waits)));
        let Some(round) = round else { return fail(Errno::NOMEM) };
        // Without a destructor, because the thread may be cancelled in the real function.
        let mut round = ManuallyDrop::new(round);
        let limit = round.time(until).map(spec);
        let each = |polled, count| match limit {
            Some(limit) => real(polled, count, Some(limit)),
            // `None` would mean the program's own limit.
            None => real(polled, count, None),
        };
        let sleeps = limit.is_none_or(|limit| limit != spec(Duration::ZERO));
        // Directly before the sleep, which a signal ends from then on.
        if sleeps && !has_signals && before.has_more() {
            guard((), || round.give_up(all()));
            drop(ManuallyDrop::into_inner(round));
            return fail(Errno::INTR);
        }
        // SAFETY: these are the structures of the round.
        let result = unsafe {
            let all = round.all();
            poll_listeners(all.as_mut_ptr(), all.len() as nfds_t, sleeps, each)
        };
        if result < 0 {
            guard((), || round.give_up(all()));
            drop(ManuallyDrop::into_inner(round));
            return result;
        }
        let result = guard(0, || round.give_back(all()));
        drop(ManuallyDrop::into_inner(round));
        if result > 0 || !waits || until.is_some_and(|until| Instant::now() >= until) {
            return result;
        }
    }
}

/// Polls with the VMCI sockets of listeners beside their TCP sockets. `sleeps` is true if the call
/// may wait.
///
/// # Safety
/// As for [`poll_both`].
unsafe fn poll_listeners(
    polled: *mut pollfd,
    count: nfds_t,
    sleeps: bool,
    real: impl FnOnce(*mut pollfd, nfds_t) -> c_int,
) -> c_int {
    // SAFETY: as the caller promises.
    let all = || unsafe { std::slice::from_raw_parts_mut(polled, count as usize) };
    let waits = |one: &pollfd| one.events & READABLE != 0 && TABLE.may_listen(one.fd);
    if polled.is_null() || !TABLE.has_listeners() || is_refused(count) || !all().iter().any(waits) {
        return real(polled, count);
    }
    // Without a destructor, because the thread may be cancelled in the real function.
    let find = if sleeps { vmci_of } else { vmci_known };
    let Some(both) = guard(None, || Some(Polled::new(all(), &find))) else { return real(polled, count) };
    let mut both = ManuallyDrop::new(both);
    let result = real(both.all().as_mut_ptr(), both.all().len() as nfds_t);
    if result > 0 && !sleeps {
        guard((), || both.check(all(), &|fd, vmci| vmci_of(fd) == Some(vmci)));
    }
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
    unsafe {
        poll_both(polled, count, WaitLimit::of(milliseconds(timeout)), |polled, count, limit| match limit {
            Some(limit) => real::ppoll(polled, count, &raw const limit, std::ptr::null()),
            None => real::poll(polled, count, timeout),
        })
    }
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
    unsafe {
        poll_both(polled, count, WaitLimit::with(duration(timeout), signals), |polled, count, limit| {
            match limit {
                Some(limit) => real::ppoll(polled, count, &raw const limit, signals),
                None => real::ppoll(polled, count, timeout, signals),
            }
        })
    }
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
