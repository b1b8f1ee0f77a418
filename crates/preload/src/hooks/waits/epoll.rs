//! `epoll_wait` and its kind.

use std::ffi::c_int;
use std::time::{Duration, Instant};

use libc::{epoll_event, sigset_t, timespec};
use rustix::io::Errno;

use super::super::{fail, guard};
use super::{WaitLimit, duration, milliseconds, spec};
use crate::rings::{self, Watching};
use crate::state::{TABLE, recognise_child};
use crate::sys::{Handled, briefly};
use crate::{datagram, gather, real};

/// Calls a function of the kind of `epoll_wait`, also for connections with rings. `limit` is the
/// program's. `real` gets another time for calls that are repeated.
///
/// # Safety
/// `events` has room for `count` events.
unsafe fn epoll(
    instance: c_int,
    events: *mut epoll_event,
    count: c_int,
    limit: WaitLimit,
    real: impl Fn(c_int, Option<Duration>) -> c_int,
) -> c_int {
    if datagram::may_be_inherited() {
        guard((), datagram::revive_all);
    }
    // Another thread may add a connection with rings during the wait.
    let by_rings = rings::is_on() && count > 0 && !events.is_null();
    if !by_rings && !gather::is_on() {
        return real(count, None);
    }
    let root = TABLE.root(instance);
    // A new child forgets all threads that wait, so it has to be recognised before.
    recognise_child();
    TABLE.waits(root, true);
    if gather::is_on() {
        guard((), gather::flush_all);
    }
    let result = if by_rings {
        // SAFETY: as the caller promises.
        unsafe { epoll_rings(instance, events, count, limit, real) }
    } else {
        real(count, None)
    };
    TABLE.waits(root, false);
    result
}

/// Waits for the rings of connections and for what else an instance watches.
///
/// # Safety
/// As for [`epoll`].
unsafe fn epoll_rings(
    instance: c_int,
    events: *mut epoll_event,
    count: c_int,
    WaitLimit { time, has_signals }: WaitLimit,
    real: impl Fn(c_int, Option<Duration>) -> c_int,
) -> c_int {
    // SAFETY: takes nothing. This function has no destructors.
    unsafe { real::pthread_testcancel() };
    let found = briefly(None, || {
        // SAFETY: as the caller promises. All bytes are valid for these numbers, and they are
        // written before they are read.
        Watching::plainly(instance, unsafe { std::slice::from_raw_parts_mut(events, count as usize) })
    });
    if let Some(found) = found {
        return c_int::try_from(found).unwrap_or(count);
    }
    let before = Handled::until_now();
    let until = time.and_then(|time| Instant::now().checked_add(time));
    let waits = !time.is_some_and(|time| time.is_zero());
    loop {
        let Some(round) = guard(None, || Some(Watching::new(instance))) else {
            return real(count, None);
        };
        let room = c_int::try_from(round.room(count as usize)).unwrap_or(count);
        let time = round.time(until);
        // Directly before the sleep, which a signal ends from then on.
        if time.is_none_or(|time| !time.is_zero()) && !has_signals && before.has_more() {
            guard(0, || round.finish(&mut [], 0));
            return fail(Errno::INTR);
        }
        let found = if room > 0 { real(room, time) } else { 0 };
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
        epoll(instance, events, count, WaitLimit::of(milliseconds(timeout)), |count, time| {
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
        epoll(instance, events, count, WaitLimit::with(milliseconds(timeout), signals), |count, time| {
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
        epoll(instance, events, count, WaitLimit::with(duration(timeout), signals), |count, time| match time
            .map(spec)
        {
            Some(time) => real::epoll_pwait2(instance, events, count, &raw const time, signals),
            None => real::epoll_pwait2(instance, events, count, timeout, signals),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

    use rustix::event::epoll::{CreateFlags, create};

    use super::*;

    #[test]
    fn a_forked_child_that_only_waits_gets_its_carriers() {
        let now = timespec { tv_sec: 0, tv_nsec: 0 };
        let instance = create(CreateFlags::CLOEXEC).unwrap();
        let mut event = epoll_event { events: 0, u64: 0 };
        let (fd, event) = (instance.as_raw_fd(), &raw mut event);
        let calls: [&dyn Fn() -> c_int; 3] = [
            // SAFETY: there is room for one event.
            &|| unsafe { epoll_wait(fd, event, 1, 0) },
            // SAFETY: as above. There is no set of signals.
            &|| unsafe { epoll_pwait(fd, event, 1, 0, std::ptr::null()) },
            // SAFETY: as above.
            &|| unsafe { epoll_pwait2(fd, event, 1, &raw const now, std::ptr::null()) },
        ];
        // They stay open, so that only their carriers free them.
        let mut sockets = Vec::new();
        for call in calls {
            let socket = datagram::open(false, true).unwrap();
            // SAFETY: nobody else has the descriptor that was just opened.
            sockets.push(unsafe { OwnedFd::from_raw_fd(socket) });
            let slot = datagram::inherited(socket);
            assert!(slot.is_inherited());
            assert_eq!(call(), 0);
            assert!(!slot.is_inherited());
        }
    }
}
