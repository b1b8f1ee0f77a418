//! `close`, `dup`, `fcntl` and `epoll_ctl`.

use std::ffi::{c_int, c_uint};

use libc::epoll_event;
use rustix::io::Errno;

use super::{fail, guard};
use crate::descriptors::{duplicated, make_way, set_cloexec};
use crate::hidden::closing;
use crate::state::{TABLE, owns};
use crate::table::{Held, Watch};
use crate::{real, watch};

/// `close(2)`.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn close(fd: c_int) -> c_int {
    if let Err(error) = guard(Ok(()), || closing(fd)) {
        return fail(error);
    }
    // SAFETY: takes a number only.
    unsafe { real::close(fd) }
}

/// `close_range(2)`: spares the hidden descriptors of listeners outside the range.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    if first > last {
        return fail(Errno::INVAL);
    }
    let ours = TABLE.numbers().filter(|fd| (first..=last).contains(&(*fd as c_uint)));
    guard((), || {
        for fd in ours.clone().filter(|fd| !TABLE.is_hidden(*fd)) {
            if flags.cast_unsigned() & libc::CLOSE_RANGE_CLOEXEC != 0 {
                set_cloexec(fd, true);
            } else {
                let _ = closing(fd);
            }
        }
    });
    let mut from = Some(first);
    for fd in ours.filter(|fd| TABLE.is_hidden(*fd)).map(|fd| fd as c_uint) {
        if let Some(start) = from
            && start < fd
        {
            // SAFETY: takes numbers only.
            let result = unsafe { real::close_range(start, fd - 1, flags) };
            if result < 0 {
                return result;
            }
        }
        from = fd.checked_add(1).filter(|next| *next <= last);
    }
    // SAFETY: takes numbers only.
    from.map_or(0, |start| unsafe { real::close_range(start, last, flags) })
}

/// `closefrom(3)`.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn closefrom(first: c_int) {
    // SAFETY: takes numbers only.
    unsafe { close_range(first.max(0) as c_uint, c_uint::MAX, 0) };
}

/// Records that the real function has made `to` a duplicate of `from`.
fn finish(from: c_int, to: c_int, before: Held, cloexec: bool) -> c_int {
    if to < 0 {
        return to;
    }
    match guard(Ok(()), || duplicated(from, to, before, cloexec)) {
        Ok(()) => to,
        Err(error) => {
            // SAFETY: takes a number only: that of the duplicate, which the program is not told of.
            unsafe { real::close(to) };
            fail(error)
        }
    }
}

/// `dup(2)`.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn dup(fd: c_int) -> c_int {
    // SAFETY: takes a number only.
    let to = unsafe { real::dup(fd) };
    finish(fd, to, Held::Nothing, false)
}

/// `dup2(2)`.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn dup2(fd: c_int, to: c_int) -> c_int {
    if fd == to {
        // SAFETY: takes numbers only.
        return unsafe { real::dup2(fd, to) };
    }
    // SAFETY: takes numbers only.
    onto(fd, to, false, || unsafe { real::dup2(fd, to) })
}

/// `dup3(2)`.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
    // SAFETY: takes numbers only.
    onto(fd, to, flags & libc::O_CLOEXEC != 0, || unsafe { real::dup3(fd, to, flags) })
}

fn onto(fd: c_int, to: c_int, cloexec: bool, duplicate: impl FnOnce() -> c_int) -> c_int {
    if let Err(error) = guard(Ok(()), || make_way(to)) {
        return fail(error);
    }
    let before = TABLE.get(to);
    finish(fd, duplicate(), before, cloexec)
}

/// `fcntl(2)`.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: as the caller promises.
    let result = unsafe { real::fcntl(fd, command, argument) };
    after_fcntl(fd, command, argument, result)
}

/// `fcntl(2)` of programs with 64-bit file offsets.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: as the caller promises.
    let result = unsafe { real::fcntl64(fd, command, argument) };
    after_fcntl(fd, command, argument, result)
}

fn after_fcntl(fd: c_int, command: c_int, argument: usize, result: c_int) -> c_int {
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => {
            finish(fd, result, Held::Nothing, command == libc::F_DUPFD_CLOEXEC)
        }
        libc::F_SETFD if result == 0 && TABLE.is_held(fd) => {
            guard((), || set_cloexec(fd, argument & libc::FD_CLOEXEC as usize != 0));
            result
        }
        _ => result,
    }
}

/// `epoll_ctl(2)`: records which instance watches a descriptor, since the descriptor may become
/// another file.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn epoll_ctl(
    epoll: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    // SAFETY: as the caller promises.
    let asked =
        (operation != libc::EPOLL_CTL_DEL && !event.is_null()).then(|| unsafe { event.read_unaligned() });
    let mut passed = asked;
    if let Some(passed) = &mut passed
        && matches!(TABLE.get(fd), Held::Listener(_))
    {
        passed.events = watch::for_listener(passed.events);
    }
    let pointer = passed.as_mut().map_or(event, std::ptr::from_mut);
    // SAFETY: as the caller promises; the event is the caller's or this frame's copy.
    let result = unsafe { real::epoll_ctl(epoll, operation, fd, pointer) };
    if result == 0 && owns() {
        match asked {
            Some(event) => TABLE.watched(fd, Watch { epoll, events: event.events, data: event.u64 }),
            None => TABLE.unwatched(fd, epoll),
        }
    }
    result
}
