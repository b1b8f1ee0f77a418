//! `listen` and `accept`.

use std::ffi::c_int;
use std::time::{Duration, Instant};

use libc::{sockaddr, socklen_t};
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};

use super::{before_waiting, fail, guard, write_address};
use crate::accept::{Look, look};
use crate::listener::{Stays, arm, attach, tcp_name, try_again};
use crate::lookup::listener;
use crate::say::{complain, tell};
use crate::state::{TABLE, map, map_for, owns};
use crate::sys::{at, errno, option};
use crate::table::{Listener, State};
use crate::tcp_accept::{has_timeout, is_non_blocking, was_disturbed, without_waiting};
use crate::waiting::{Signals, Woken, wait};
use crate::{descriptors, real};

/// `listen(2)`.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn listen(fd: c_int, backlog: c_int) -> c_int {
    // SAFETY: takes numbers only.
    let result = unsafe { real::listen(fd, backlog) };
    if result == 0 {
        guard((), || match listener(fd) {
            Some(listener) => descriptors::set_backlog(fd, listener, backlog),
            None => listens(fd, backlog),
        });
    }
    result
}

fn listens(fd: c_int, backlog: c_int) {
    let Some(map) = map_for(fd) else { return };
    match attach(fd, backlog, map) {
        Ok(bound) => {
            tell!("listen {bound}: TCP and VMCI");
            if option(fd, libc::SOL_SOCKET, libc::SO_REUSEPORT).is_ok_and(|set| set != 0) {
                complain!(
                    "listen {bound}: the first socket of a group (SO_REUSEPORT) gets all VMCI connections\n\
                     hint: use one listening socket, and accept from it in each thread or process"
                );
            }
        }
        Err((bound, why @ (Stays::Failed(..) | Stays::Taken(..)))) => {
            complain!("listen {bound}: TCP only: {why}\nhint: {}", why.hint());
        }
        Err((bound, why @ Stays::Watched)) => {
            complain!("listen {bound}: TCP only: {why}\nhint: call listen before the socket is watched");
        }
        Err((bound, why)) => tell!("listen {bound}: TCP only: {why}"),
    }
}

/// `accept(2)`.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn accept(
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    before_waiting();
    if TABLE.may_listen(fd) {
        // SAFETY: as the caller promises.
        return unsafe { accept4(fd, address, len, 0) };
    }
    // SAFETY: as the caller promises.
    accept_tcp(fd, None, &|| unsafe { real::accept(fd, address, len) })
}

/// `accept4(2)`.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn accept4(
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> c_int {
    before_waiting();
    // SAFETY: as the caller promises.
    let accept = || unsafe { real::accept4(fd, address, len, flags) };
    if TABLE.may_listen(fd)
        && let Some(listener) = guard(None, || listener(fd))
    {
        if listener.vmci.is_some() {
            // SAFETY: as the caller promises.
            return unsafe { accept_both(fd, listener, address, len, flags) };
        }
        let accepted = accept_tcp(fd, Some(listener), &accept);
        if accepted >= 0 {
            guard((), || try_again(fd, listener));
        }
        return accepted;
    }
    accept_tcp(fd, None, &accept)
}

/// Accepts from a socket without a VMCI socket beside it. `accept` is the program's own call.
fn accept_tcp(fd: c_int, listener: Option<Listener>, accept: &dyn Fn() -> c_int) -> c_int {
    loop {
        let accepted = accept();
        if accepted >= 0 || errno() != Errno::AGAIN {
            return accepted;
        }
        // Processes accept from the socket in turns only if the map names it.
        let is_shared = || map().zip(tcp_name(fd)).is_some_and(|(map, name)| map.entrance(name).is_some());
        let again = || match listener {
            Some(listener) => !returns_at_once(fd, listener) && !has_timeout(fd),
            None => is_shared() && was_disturbed(fd),
        };
        if !guard(false, again) {
            return fail(Errno::AGAIN);
        }
    }
}

/// Tells whether the program has made a listener non-blocking. The table remembers that, because
/// the answer takes a lock.
fn returns_at_once(fd: c_int, listener: Listener) -> bool {
    let has_flag = || at(fd).and_then(fcntl_getfl).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK));
    if listener.non_blocking && has_flag() {
        return true;
    }
    let Ok(non_blocking) = is_non_blocking(fd) else { return true };
    if non_blocking != listener.non_blocking && owns() {
        TABLE.change(fd, listener.cookie, |state| State { non_blocking, ..state });
    }
    non_blocking
}

/// Accepts a connection of either kind. Waits for one if the program's descriptor is blocking.
///
/// # Safety
/// `address` and `len` as for accept.
unsafe fn accept_both(
    fd: c_int,
    mut listener: Listener,
    address: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> c_int {
    // SAFETY: takes nothing. This function has no destructors here.
    unsafe { real::pthread_testcancel() };
    let waits = !guard(true, || returns_at_once(fd, listener));
    if waits {
        listener = guard(listener, || arm(fd, listener));
    }
    let accept = || {
        // Not the C library's function: the thread may be cancelled there, and must not within
        // `guard`.
        // SAFETY: as the caller promises.
        let accepted = unsafe { libc::syscall(libc::SYS_accept4, fd, address, len, flags) };
        if accepted < 0 { Err(errno()) } else { Ok(accepted as c_int) }
    };
    let tcp = || if waits { without_waiting(fd, accept) } else { accept() };
    let until = accept_timeout(fd).map(|timeout| Instant::now() + timeout);
    loop {
        match guard(Look::Failed(Errno::CONNABORTED), || look(fd, listener, flags, &tcp)) {
            Look::Tcp(accepted) => {
                guard((), || try_again(fd, listener));
                return accepted;
            }
            Look::Vmci(accepted, peer) => {
                if !address.is_null() {
                    // SAFETY: as the caller promises.
                    unsafe { write_address(address, len, peer) };
                }
                return accepted;
            }
            Look::Failed(error) => return fail(error),
            Look::Nothing if !waits => return fail(Errno::AGAIN),
            Look::Nothing => {}
        }
        let signals = if until.is_some() { Signals::Interrupt } else { Signals::Restart };
        match wait(&[fd, listener.vmci.unwrap_or(-1)], libc::POLLIN, until, signals) {
            Woken::Ready => {}
            Woken::TimedOut => return fail(Errno::AGAIN),
            Woken::Interrupted => return fail(Errno::INTR),
            Woken::Failed(error) => return fail(error),
        }
        // Meanwhile the program may have closed the socket, and its number may be another file.
        if at(fd).and_then(sockopt::socket_cookie) != Ok(listener.cookie) {
            return fail(Errno::BADF);
        }
        match guard(None, || crate::lookup::listener(fd).map(|now| arm(fd, now))) {
            Some(now) => listener = now,
            // The listener was shut down.
            // SAFETY: as the caller promises.
            None => return accept_tcp(fd, None, &|| unsafe { real::accept4(fd, address, len, flags) }),
        }
    }
}

/// Timeout of an accept (`SO_RCVTIMEO`).
fn accept_timeout(fd: c_int) -> Option<Duration> {
    at(fd).and_then(|tcp| sockopt::socket_timeout(tcp, Timeout::Recv)).ok().flatten()
}
