//! `poll` and `select`: a listener is readable if a connection of either kind is waiting. Before
//! the program waits, also by `epoll_wait`, gathered bytes are sent.

use std::cell::Cell;
use std::ffi::{c_int, c_ulong};
use std::mem::ManuallyDrop;
use std::time::{Duration, Instant};

use libc::{epoll_event, fd_set, nfds_t, pollfd, sigset_t, size_t, timespec, timeval};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::{fail, guard};
use crate::listener::arm;
use crate::lookup::listener;
use crate::readiness::{Polled, READABLE, Selected, limited, words};
use crate::rings::{self, Polling, Selecting, Watching};
use crate::state::TABLE;
use crate::table::{Held, Listener};
use crate::{datagram, gather, real};

/// The VMCI socket of a listener that the program waits for now.
fn vmci_of(fd: c_int) -> Option<c_int> {
    arm(fd, listener(fd)?).vmci
}

/// The same for a call that does not wait. The kernel is asked what the sockets are only if the VMCI
/// socket has an event.
fn vmci_known(fd: c_int) -> Option<c_int> {
    match TABLE.get(fd) {
        Held::Listener(Listener { armed: true, vmci: Some(vmci), .. }) => Some(vmci),
        _ => vmci_of(fd),
    }
}

/// Tells whether the kernel refuses so many descriptors (`EINVAL`) and reads none of them.
fn is_refused(count: nfds_t) -> bool {
    /// The usual limit of open files. Asking for the limit only beyond it saves a system call.
    const USUAL: nfds_t = 1024;
    count > USUAL && getrlimit(Resource::Nofile).current.is_some_and(|limit| count > limit)
}

/// Calls a function of the kind of `poll` with the VMCI sockets of the listeners among `polled`,
/// and with the rings of connections. `time` is the program's limit. `real` gets another one for
/// calls that are repeated.
///
/// # Safety
/// `polled` points to `count` structures.
unsafe fn poll_both(
    polled: *mut pollfd,
    count: nfds_t,
    time: Option<Duration>,
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
        return unsafe { poll_rings(polled, count, time, real) };
    }
    // SAFETY: as the caller promises.
    unsafe { count_waits(polled, count, true) };
    guard((), gather::flush_all);
    // SAFETY: as the caller promises.
    let result = unsafe { poll_rings(polled, count, time, real) };
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

/// The same for connections with rings. Each round polls what belongs to the rings in place of the
/// connections.
///
/// # Safety
/// As for [`poll_both`].
unsafe fn poll_rings(
    polled: *mut pollfd,
    count: nfds_t,
    time: Option<Duration>,
    real: impl Fn(*mut pollfd, nfds_t, Option<timespec>) -> c_int,
) -> c_int {
    // SAFETY: as the caller promises.
    let all = || unsafe { std::slice::from_raw_parts_mut(polled, count as usize) };
    if polled.is_null() || !rings::is_on() || is_refused(count) || !Polling::concerns(all()) {
        // SAFETY: as the caller promises.
        return unsafe { poll_listeners(polled, count, true, |polled, count| real(polled, count, None)) };
    }
    // SAFETY: takes nothing. This function has no destructors here.
    unsafe { real::pthread_testcancel() };
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
        // SAFETY: these are the structures of the round.
        let result = unsafe {
            let (all, sleeps) = (round.all(), limit.is_none_or(|limit| limit != spec(Duration::ZERO)));
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

fn spec(time: Duration) -> timespec {
    let seconds = libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX);
    timespec { tv_sec: seconds, tv_nsec: time.subsec_nanos().into() }
}

/// The same for listeners. `sleeps` is true if the call may wait.
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

/// A limit in milliseconds; `None` for none.
fn milliseconds(timeout: c_int) -> Option<Duration> {
    u64::try_from(timeout).ok().map(Duration::from_millis)
}

/// A limit of a program; `None` for none.
///
/// # Safety
/// `timeout` is null or points to a time.
unsafe fn duration(timeout: *const timespec) -> Option<Duration> {
    if timeout.is_null() {
        return None;
    }
    // SAFETY: as the caller promises.
    let time = unsafe { timeout.read_unaligned() };
    Some(Duration::new(time.tv_sec.max(0) as u64, time.tv_nsec.clamp(0, 999_999_999) as u32))
}

/// `poll(2)`.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn poll(polled: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        poll_both(polled, count, milliseconds(timeout), |polled, count, limit| match limit {
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
        poll_both(polled, count, duration(timeout), |polled, count, limit| match limit {
            Some(limit) => real::ppoll(polled, count, &raw const limit, signals),
            None => real::ppoll(polled, count, timeout, signals),
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

/// The same for connections with rings: the sets as a `poll`.
///
/// # Safety
/// As for [`select_both`].
unsafe fn select_rings(
    asked: c_int,
    sets: [*mut fd_set; 3],
    limit: Limit<'_>,
    real: impl FnOnce(c_int, [*mut fd_set; 3]) -> c_int,
) -> c_int {
    let count = if rings::is_on() { guard(None, || limited(asked)) } else { None };
    let bits = |set: *mut fd_set| {
        if set.is_null() {
            return None;
        }
        // SAFETY: as the caller promises; a set is an array of such words.
        Some(unsafe { std::slice::from_raw_parts_mut(set.cast::<c_ulong>(), words(count.unwrap_or(0))) })
    };
    let read = || sets.map(|set| bits(set).map(|bits| &*bits));
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
        poll_both(pointer, len, limit.time, |polled, count, now| {
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

/// The same for listeners.
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

/// Calls a function of the kind of `epoll_wait`, also for connections with rings. `time` is the
/// program's limit. `real` gets another one for calls that are repeated.
///
/// # Safety
/// `events` has room for `count` events.
unsafe fn epoll(
    instance: c_int,
    events: *mut epoll_event,
    count: c_int,
    time: Option<Duration>,
    real: impl Fn(c_int, Option<Duration>) -> c_int,
) -> c_int {
    // Another thread may add a connection with rings during the wait.
    let by_rings = rings::is_on() && count > 0 && !events.is_null();
    if !by_rings && !gather::is_on() {
        return real(count, None);
    }
    let root = TABLE.root(instance);
    TABLE.waits(root, true);
    if gather::is_on() {
        guard((), gather::flush_all);
    }
    let result = if by_rings {
        // SAFETY: as the caller promises.
        unsafe { epoll_rings(instance, events, count, time, real) }
    } else {
        real(count, None)
    };
    TABLE.waits(root, false);
    result
}

/// The same for an instance that watches connections with rings.
///
/// # Safety
/// As for [`epoll`].
unsafe fn epoll_rings(
    instance: c_int,
    events: *mut epoll_event,
    count: c_int,
    time: Option<Duration>,
    real: impl Fn(c_int, Option<Duration>) -> c_int,
) -> c_int {
    // SAFETY: takes nothing. This function has no destructors.
    unsafe { real::pthread_testcancel() };
    let until = time.and_then(|time| Instant::now().checked_add(time));
    let waits = !time.is_some_and(|time| time.is_zero());
    loop {
        let Some(round) = guard(None, || Some(Watching::new(instance))) else {
            return real(count, None);
        };
        let room = c_int::try_from(round.room(count as usize)).unwrap_or(count);
        let found = if room > 0 { real(room, round.time(until)) } else { 0 };
        if found < 0 {
            return found;
        }
        let found = guard(found, || {
            // The kernel has filled the first ones. Others are written before they are read.
            // SAFETY: as the caller promises. All bytes are valid for these numbers.
            let all = unsafe { std::slice::from_raw_parts_mut(events, count as usize) };
            c_int::try_from(round.finish(all, found as usize)).unwrap_or(found)
        });
        if found > 0 || !waits || until.is_some_and(|until| Instant::now() >= until) {
            return found;
        }
    }
}

/// A limit as `epoll_wait` takes it, rounded up.
fn in_milliseconds(time: Duration) -> c_int {
    c_int::try_from((time + Duration::from_micros(999)).as_millis()).unwrap_or(c_int::MAX)
}

/// `epoll_wait(2)`.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn epoll_wait(
    instance: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: c_int,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        epoll(instance, events, count, milliseconds(timeout), |count, time| {
            real::epoll_wait(instance, events, count, time.map_or(timeout, in_milliseconds))
        })
    }
}

/// `epoll_pwait(2)`.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn epoll_pwait(
    instance: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: c_int,
    signals: *const sigset_t,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        epoll(instance, events, count, milliseconds(timeout), |count, time| {
            real::epoll_pwait(instance, events, count, time.map_or(timeout, in_milliseconds), signals)
        })
    }
}

/// `epoll_pwait2(2)`.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn epoll_pwait2(
    instance: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: *const timespec,
    signals: *const sigset_t,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        epoll(instance, events, count, duration(timeout), |count, time| match time.map(spec) {
            Some(time) => real::epoll_pwait2(instance, events, count, &raw const time, signals),
            None => real::epoll_pwait2(instance, events, count, timeout, signals),
        })
    }
}
