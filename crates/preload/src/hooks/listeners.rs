//! `listen` and `accept`.

use std::ffi::c_int;
use std::time::Duration;

use libc::{sockaddr, socklen_t};
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};

use super::{fail, guard, write_address};
use crate::listener::{Look, Stays, combine, look};
use crate::lookup::listener;
use crate::say::{complain, tell};
use crate::state::{TABLE, map_for};
use crate::sys::{at, errno, option};
use crate::table::{Held, Listener};
use crate::{descriptors, real};

/// `listen(2)`.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn listen(fd: c_int, backlog: c_int) -> c_int {
    if let Some(listener) = guard(None, || listener(fd)) {
        descriptors::set_backlog(listener, backlog);
        // SAFETY: takes numbers only.
        return unsafe { real::listen(listener.tcp, backlog) };
    }
    // SAFETY: takes numbers only.
    let result = unsafe { real::listen(fd, backlog) };
    if result == 0 {
        guard((), || listens(fd, backlog));
    }
    result
}

fn listens(fd: c_int, backlog: c_int) {
    let Some(map) = map_for(fd) else { return };
    match combine(fd, backlog, map) {
        Ok(bound) => {
            tell!("listen {bound}: TCP and VMCI");
            let tcp = if let Held::Listener(listener) = TABLE.get(fd) { listener.tcp } else { fd };
            if option(tcp, libc::SOL_SOCKET, libc::SO_REUSEPORT).is_ok_and(|set| set != 0) {
                complain!(
                    "listen {bound}: the first socket of a group (SO_REUSEPORT) gets all VMCI connections\n\
                     hint: use one listening socket, and accept from it in each thread or process"
                );
            }
        }
        Err((bound, why @ Stays::Failed(..))) => {
            complain!(
                "listen {bound}: TCP only: {why}\n\
                 hint: give it another port in the map (`listen {bound} -> vsock port N`); ports below 1024 require root"
            );
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
    if let Some(listener) = guard(None, || listener(fd)) {
        // SAFETY: as the caller promises.
        return unsafe { accept_both(fd, listener, address, len, 0) };
    }
    // SAFETY: as the caller promises.
    unsafe { real::accept(fd, address, len) }
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
    if let Some(listener) = guard(None, || listener(fd)) {
        // SAFETY: as the caller promises.
        return unsafe { accept_both(fd, listener, address, len, flags) };
    }
    // SAFETY: as the caller promises.
    unsafe { real::accept4(fd, address, len, flags) }
}

/// Accepts a connection. Waits for one if the program's descriptor is blocking.
///
/// # Safety
/// `address` and `len` as for accept.
unsafe fn accept_both(
    fd: c_int,
    listener: Listener,
    address: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> c_int {
    let tcp = |tcp: c_int| {
        // SAFETY: as the caller promises; the descriptor does not wait, so the thread is not
        // cancelled here.
        let accepted = unsafe { real::accept4(tcp, address, len, flags) };
        if accepted < 0 { Err(errno()) } else { Ok(accepted) }
    };
    loop {
        match guard(Look::Failed(Errno::CONNABORTED), || look(fd, listener, flags, &tcp)) {
            Look::Tcp(accepted) => return accepted,
            Look::Vmci(accepted, peer) => {
                if !address.is_null() {
                    // SAFETY: as the caller promises.
                    unsafe { write_address(address, len, peer) };
                }
                return accepted;
            }
            Look::Failed(error) => return fail(error),
            Look::Nothing => {}
        }
        let Some(timeout) = patience(fd, listener) else { return fail(Errno::AGAIN) };
        let mut polled = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd of this frame.
        match unsafe { real::poll(&raw mut polled, 1, timeout) } {
            0 => return fail(Errno::AGAIN),
            // Interrupted by a signal, as accept is.
            count if count < 0 => return -1,
            _ if polled.revents & libc::POLLNVAL != 0 => return fail(Errno::BADF),
            _ => {}
        }
    }
}

/// Timeout of an accept in milliseconds, -1 for none; `None` if the descriptor is non-blocking.
fn patience(fd: c_int, listener: Listener) -> Option<c_int> {
    let flags = at(fd).and_then(fcntl_getfl).unwrap_or(OFlags::NONBLOCK);
    if flags.contains(OFlags::NONBLOCK) {
        return None;
    }
    let limit = at(listener.tcp).and_then(|tcp| sockopt::socket_timeout(tcp, Timeout::Recv)).ok().flatten();
    Some(limit.map_or(-1, |limit: Duration| c_int::try_from(limit.as_millis()).unwrap_or(c_int::MAX)))
}
