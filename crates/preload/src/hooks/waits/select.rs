//! `select` and its kind.

use std::cell::Cell;
use std::ffi::{c_int, c_ulong};
use std::mem::ManuallyDrop;
use std::time::{Duration, Instant};

use libc::{fd_set, nfds_t, sigset_t, timespec, timeval};
use rustix::io::Errno;

use super::super::{fail, guard};
use super::poll::poll_both;
use super::{WaitLimit, duration, spec, vmci_of};
use crate::readiness::{Selected, USUAL, limited, words};
use crate::rings::{self, Polling, Selecting, select_plainly, selected};
use crate::state::TABLE;
use crate::sys::briefly;
use crate::{datagram, gather, real};

/// Calls a function of the kind of `select` with the VMCI sockets of the listeners in `reading`.
///
/// # Safety
/// Each set is null or has bits for all descriptors below `count`, as far as the process's table of
/// descriptors goes.
unsafe fn select_both(
    count: c_int,
    [reading, writing, failing]: [*mut fd_set; 3],
    limit: Limit<'_>,
    real: impl FnOnce(c_int, [*mut fd_set; 3]) -> c_int,
) -> c_int {
    if datagram::may_be_inherited() {
        guard((), datagram::revive_all);
    }
    if !gather::is_on() {
        // SAFETY: as the caller promises.
        return unsafe { select_rings(count, [reading, writing, failing], limit, real) };
    }
    gather::selects(true);
    guard((), gather::flush_all);
    // SAFETY: as the caller promises.
    let result = unsafe { select_rings(count, [reading, writing, failing], limit, real) };
    gather::selects(false);
    result
}

/// The limits of a `select`.
#[derive(Clone, Copy)]
struct Limit<'a> {
    time: Option<Duration>,
    /// Signals that are blocked meanwhile; null for no change.
    signals: *const sigset_t,
    /// Gets the time at which the wait began, if the answer was not known at once.
    started: &'a Cell<Option<Instant>>,
}

/// Selects with the rings of connections in place of their sockets, by a `poll` of the sets.
///
/// # Safety
/// As for [`select_both`].
unsafe fn select_rings(
    asked: c_int,
    sets: [*mut fd_set; 3],
    limit: Limit<'_>,
    real: impl FnOnce(c_int, [*mut fd_set; 3]) -> c_int,
) -> c_int {
    let count = if rings::is_on() { limited_now(asked) } else { None };
    let bits = |set: *mut fd_set| {
        if set.is_null() {
            return None;
        }
        // SAFETY: as the caller promises; a set is an array of such words.
        Some(unsafe { std::slice::from_raw_parts_mut(set.cast::<c_ulong>(), words(count.unwrap_or(0))) })
    };
    if let Some(count) = count.filter(|_| !gather::is_on()) {
        // SAFETY: takes nothing. The frame has no destructors here.
        unsafe { real::pthread_testcancel() };
        if let Some(bits) = briefly(None, || select_plainly(count, sets.map(bits))) {
            return bits;
        }
    }
    let read = || sets.map(|set| bits(set).map(|bits| &*bits));
    if let Some(count) = count.filter(|count| rings::has_instance(selected(*count, read()))) {
        guard((), || rings::instances_watched(selected(count, read())));
    }
    let Some(count) = count.filter(|count| Selecting::concerns(*count, read())) else {
        // SAFETY: as the caller promises.
        return unsafe { select_listeners(asked, sets, real) };
    };
    let Some(selecting) = guard(None, || Some(Selecting::new(count, read()))) else {
        return fail(Errno::NOMEM);
    };
    // Without a destructor, because the thread may be cancelled in the poll.
    let mut selecting = ManuallyDrop::new(selecting);
    let all = selecting.all();
    // SAFETY: takes nothing. The frame has no destructors here.
    unsafe { real::pthread_testcancel() };
    let waits = !limit.time.is_some_and(|time| time.is_zero());
    if !gather::is_on() && !all.is_empty() && guard(None, || Polling::at_once(all, waits)).is_some() {
        let bits = selecting.give_back(sets.map(bits));
        drop(ManuallyDrop::into_inner(selecting));
        return bits;
    }
    let (pointer, len) = (all.as_mut_ptr(), all.len() as nfds_t);
    let started = Instant::now();
    limit.started.set(Some(started));
    // SAFETY: these are the structures of the list; the set of signals is the caller's.
    let result = unsafe {
        poll_both(pointer, len, WaitLimit::with(limit.time, limit.signals), |polled, count, now| {
            let left = || limit.time.map(|time| spec(time.saturating_sub(started.elapsed())));
            match now.or_else(left) {
                Some(time) => real::ppoll(polled, count, &raw const time, limit.signals),
                None => real::ppoll(polled, count, std::ptr::null(), limit.signals),
            }
        })
    };
    let result = if result >= 0 && selecting.has_bad() {
        fail(Errno::BADF)
    } else if result >= 0 {
        selecting.give_back(sets.map(bits))
    } else {
        result
    };
    drop(ManuallyDrop::into_inner(selecting));
    result
}

/// The count of a `select`, as the kernel limits it.
fn limited_now(asked: c_int) -> Option<c_int> {
    if asked <= USUAL { Some(asked) } else { guard(None, || limited(asked)) }
}

/// Selects with the VMCI sockets of listeners beside their TCP sockets.
///
/// # Safety
/// As for [`select_both`].
unsafe fn select_listeners(
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
    let time = (!timeout.is_null()).then(|| unsafe { timeout.read_unaligned() });
    let is_valid = |time: timeval| time.tv_sec >= 0 && time.tv_usec >= 0;
    if time.is_some_and(|time| !is_valid(time)) {
        // The kernel refuses it.
        // SAFETY: as the caller promises.
        return unsafe { real::select(count, reading, writing, failing, timeout) };
    }
    let time = time.map(|time| {
        Duration::from_secs(time.tv_sec as u64).saturating_add(Duration::from_micros(time.tv_usec as u64))
    });
    let started = Cell::new(None);
    let limit = Limit { time, signals: std::ptr::null(), started: &started };
    let by_kernel = Cell::new(false);
    // SAFETY: as the caller promises.
    let result = unsafe {
        select_both(count, [reading, writing, failing], limit, |count, [reading, writing, failing]| {
            by_kernel.set(true);
            real::select(count, reading, writing, failing, timeout)
        })
    };
    // As the kernel does on Linux.
    if !by_kernel.get()
        && let (Some(time), Some(started)) = (time, started.get())
    {
        let left = time.saturating_sub(started.elapsed());
        let left = timeval { tv_sec: left.as_secs().cast_signed(), tv_usec: left.subsec_micros().into() };
        // SAFETY: as the caller promises.
        unsafe { timeout.write_unaligned(left) };
    }
    result
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
    let time = unsafe { duration(timeout) };
    let limit = Limit { time, signals, started: &Cell::new(None) };
    // SAFETY: as the caller promises.
    unsafe {
        select_both(count, [reading, writing, failing], limit, |count, [reading, writing, failing]| {
            real::pselect(count, reading, writing, failing, timeout, signals)
        })
    }
}
