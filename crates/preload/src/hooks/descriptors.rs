//! `close`, `dup`, `fcntl` and `epoll_ctl`.

use std::ffi::{c_int, c_uint};

use libc::epoll_event;
use rustix::io::Errno;

use super::{before_files, before_sharing, fail, guard};
use crate::descriptors::{self, duplicated, make_way, set_cloexec};
use crate::hidden::is_there;
use crate::listener::{arm, stays_tcp};
use crate::lookup::listener;
use crate::rings::closing;
use crate::state::{TABLE, owns};
use crate::table::Watch;
use crate::tcp_accept::{Turn, in_turn};
use crate::{datagram, gather, real, rings, sys, watch};

/// `close(2)`.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn close(fd: c_int) -> c_int {
    let listens = TABLE.may_listen(fd);
    if gather::is_on() {
        guard((), || gather::closes(fd));
    }
    if let Err(error) = guard(Ok(()), || closing(fd)) {
        return fail(error);
    }
    let result = if listens {
        // A close ends the record locks of the whole process (`man 2 fcntl`), also that of an
        // accept.
        guard(Ok(()), || in_turn(|| sys::close(fd))).map_or_else(fail, |()| 0)
    } else {
        // SAFETY: takes a number only.
        unsafe { real::close(fd) }
    };
    TABLE.note_close();
    result
}

/// `close_range(2)`: spares all hidden descriptors whose owners are not closed.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    const KNOWN: c_uint = libc::CLOSE_RANGE_UNSHARE | libc::CLOSE_RANGE_CLOEXEC;
    if first > last || flags.cast_unsigned() & !KNOWN != 0 {
        // The kernel refuses it.
        // SAFETY: takes numbers only.
        return unsafe { real::close_range(first, last, flags) };
    }
    let _turn = Turn::take();
    let ours = TABLE.numbers().filter(|fd| (first..=last).contains(&(*fd as c_uint)));
    guard((), || {
        for fd in ours.clone().filter(|fd| !is_there(*fd)) {
            if flags.cast_unsigned() & libc::CLOSE_RANGE_CLOEXEC != 0 {
                set_cloexec(fd, true);
            } else {
                gather::closes(fd);
                let _ = closing(fd);
            }
        }
    });
    let mut from = Some(first);
    for fd in ours.filter(|fd| is_there(*fd)).map(|fd| fd as c_uint) {
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
    let result = from.map_or(0, |start| unsafe { real::close_range(start, last, flags) });
    TABLE.note_close();
    result
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
fn finish(from: c_int, to: c_int, cloexec: bool) -> c_int {
    if to < 0 {
        return to;
    }
    guard((), || duplicated(from, to, cloexec));
    to
}

/// `dup(2)`.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn dup(fd: c_int) -> c_int {
    before_sharing(fd);
    // SAFETY: takes a number only.
    let to = unsafe { real::dup(fd) };
    finish(fd, to, false)
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
    before_sharing(fd);
    let prepare = || {
        gather::closes(to);
        gather::makes_way(to)
    };
    if gather::is_on()
        && let Err(error) = guard(Ok(()), prepare)
    {
        return fail(error);
    }
    if let Err(error) = guard(Ok(()), || make_way(to)) {
        return fail(error);
    }
    // As for close.
    let to = if TABLE.may_listen(to) { guard(-1, || in_turn(duplicate)) } else { duplicate() };
    finish(fd, to, cloexec)
}

/// `fcntl(2)`.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: as the caller promises.
    around_fcntl(fd, command, argument, || unsafe { real::fcntl(fd, command, argument) })
}

/// `fcntl(2)` of programs with 64-bit file offsets.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: as the caller promises.
    around_fcntl(fd, command, argument, || unsafe { real::fcntl64(fd, command, argument) })
}

fn around_fcntl(fd: c_int, command: c_int, argument: usize, call: impl Fn() -> c_int) -> c_int {
    if matches!(command, libc::F_GETFL | libc::F_SETFL) && TABLE.may_listen(fd) {
        return guard(-1, || descriptors::with_flags(fd, command == libc::F_SETFL, call));
    }
    if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) {
        before_sharing(fd);
    }
    if command == libc::F_SETFL && argument & libc::O_ASYNC as usize != 0 {
        // Signals come from the kernel's socket.
        before_files([fd]);
    }
    let result = call();
    if command == libc::F_SETFL && rings::concerns(fd) {
        guard((), || rings::mode_changed(fd));
    }
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => finish(fd, result, command == libc::F_DUPFD_CLOEXEC),
        libc::F_SETFD if result == 0 && TABLE.is_held(fd) => {
            guard((), || set_cloexec(fd, argument & libc::FD_CLOEXEC as usize != 0));
            result
        }
        _ => result,
    }
}

/// `epoll_ctl(2)`: records which instance watches a descriptor, since the descriptor may become
/// another file. The VMCI socket of a listener is watched, too.
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
    if datagram::may_be_inherited() {
        // Starts its carrier.
        guard((), || _ = datagram::find(fd));
    }
    if rings::concerns(fd)
        && owns()
        // SAFETY: as the caller promises.
        && let Some(result) = guard(None, || watches_rings(operation, epoll, fd, unsafe { read_event(event) }))
    {
        return result.map_or_else(fail, |()| 0);
    }
    // SAFETY: as the caller promises.
    let result = unsafe { real::epoll_ctl(epoll, operation, fd, event) };
    if result != 0 || !owns() {
        return result;
    }
    // SAFETY: as the caller promises; the real function has accepted it.
    let asked =
        (operation != libc::EPOLL_CTL_DEL && !event.is_null()).then(|| unsafe { event.read_unaligned() });
    let watch = asked.map(|event| Watch { epoll, events: event.events, data: event.u64 });
    match watch {
        Some(watch) => {
            TABLE.watched(fd, watch);
            if rings::is_on() && rings::has_instance([fd].into_iter()) {
                guard((), || rings::instances_watched([fd].into_iter()));
            }
        }
        None => TABLE.unwatched(fd, epoll),
    }
    if TABLE.may_listen(fd) {
        guard((), || watches(operation, epoll, fd, watch));
    }
    result
}

/// Reads the event that a program passes.
///
/// # Safety
/// `event` is null or points to an event.
unsafe fn read_event(event: *const epoll_event) -> Option<epoll_event> {
    // SAFETY: as the caller promises.
    (!event.is_null()).then(|| unsafe { event.read_unaligned() })
}

/// Does for a connection with rings what the program has asked for. `None` if that is the kernel's.
fn watches_rings(
    operation: c_int,
    epoll: c_int,
    fd: c_int,
    event: Option<epoll_event>,
) -> Option<Result<(), Errno>> {
    let (events, data) = event.map_or((0, 0), |event| (event.events, event.u64));
    let is_known = match operation {
        libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD => event.is_some(),
        libc::EPOLL_CTL_DEL => true,
        _ => false,
    };
    if !is_known || !rings::is_watched_here(epoll, operation, fd, events) {
        return None;
    }
    Some(rings::epoll_control(operation, fd, Watch { epoll, events, data }))
}

/// Does for the VMCI socket of a listener what the program has done for the TCP socket.
fn watches(operation: c_int, epoll: c_int, fd: c_int, watch: Option<Watch>) {
    let Some(mut listener) = listener(fd) else { return };
    let reads = watch.is_some_and(|watch| watch::reads(watch.events));
    if reads {
        listener = arm(fd, listener);
    }
    let Some(vmci) = listener.vmci else { return };
    // Before the program waits for connections, the VMCI socket does not listen.
    if !listener.armed && watch.is_some() {
        return;
    }
    if let Err(error) = watch::alike(operation, epoll, vmci, watch) {
        stays_tcp(listener, error);
    }
}
