//! `connect`, `getpeername`, `getsockname` and `shutdown`.

use std::ffi::c_int;
use std::net::SocketAddr;

use libc::{sockaddr, socklen_t};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

use super::{before_waiting, datagrams, fail, guard, read_address, write_address};
use crate::connect::{Attempt, again, attempt, dissolve};
use crate::datagram;
use crate::lookup::{connection, listener};
use crate::state::{TABLE, map_for};
use crate::sys::{at, errno};
use crate::table::Connection;
use crate::{adopt, descriptors, gather, names, real, rings};

/// `connect(2)`.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn connect(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
    if let Some(slot) = datagram::find(fd) {
        // SAFETY: as the caller promises.
        return unsafe { datagrams::connect(slot, address, len) };
    }
    before_waiting();
    // SAFETY: as the caller promises.
    let dissolves = unsafe { family_of(address, len) } == Some(libc::AF_UNSPEC);
    if TABLE.is_held(fd)
        && let Some(connection) = guard(None, || connection(fd))
    {
        if dissolves {
            return guard(Ok(()), || dissolve(fd, connection)).map_or_else(fail, |()| 0);
        }
        return guard(None, || again(fd)).map_or(0, fail);
    }
    // SAFETY: as the caller promises.
    let to = unsafe { read_address(address, len) };
    let decision = guard(Attempt::Tcp(None), || match to {
        Some(to) => map_for(fd).map_or(Attempt::Tcp(None), |map| attempt(fd, to, map)),
        None => Attempt::Tcp(None),
    });
    // The thread was perhaps cancelled while it waited.
    if !matches!(decision, Attempt::Tcp(None)) {
        // SAFETY: takes nothing. This function has no destructors here.
        unsafe { real::pthread_testcancel() };
    }
    let why = match decision {
        Attempt::Done(Ok(())) => return 0,
        Attempt::Done(Err(error)) => return fail(error),
        Attempt::Tcp(why) => why,
        // SAFETY: as the caller promises.
        Attempt::Interrupted => return unsafe { connect_in_background(fd, address, len) },
    };
    // SAFETY: as the caller promises.
    let result = unsafe { real::connect(fd, address, len) };
    match why {
        // TCP has no route to the address, so the program gets the error of VMCI.
        Some(why)
            if result < 0 && matches!(errno(), Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::NETDOWN) =>
        {
            fail(why)
        }
        _ => result,
    }
}

/// Starts the connect of a blocking TCP socket that a signal has interrupted. As with TCP alone, it
/// goes on in the background while the program handles `EINTR`.
///
/// # Safety
/// As for connect.
unsafe fn connect_in_background(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
    let Ok(socket) = at(fd) else { return fail(Errno::BADF) };
    let Ok(flags) = fcntl_getfl(socket) else { return fail(Errno::BADF) };
    let _ = fcntl_setfl(socket, flags | OFlags::NONBLOCK);
    // SAFETY: as the caller promises.
    let result = unsafe { real::connect(fd, address, len) };
    let error = errno();
    let _ = fcntl_setfl(socket, flags);
    if result < 0 { fail(if error == Errno::INPROGRESS { Errno::INTR } else { error }) } else { result }
}

/// The address family that a program passes.
///
/// # Safety
/// `address` is null or points to `len` bytes.
pub(super) unsafe fn family_of(address: *const sockaddr, len: socklen_t) -> Option<c_int> {
    if address.is_null() || (len as usize) < size_of::<libc::sa_family_t>() {
        return None;
    }
    // SAFETY: there are enough bytes, as the caller promises.
    Some(c_int::from(unsafe { address.cast::<libc::sa_family_t>().read_unaligned() }))
}

/// `getpeername(2)`.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn getpeername(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int {
    if let Some(slot) = datagram::find(fd) {
        let Some(peer) = slot.peer() else { return fail(Errno::NOTCONN) };
        // SAFETY: as the caller promises.
        return unsafe { datagrams::write_address(address, len, peer) };
    }
    if TABLE.is_held(fd)
        && let Some(peer) = guard(None, || names::peer(fd))
    {
        // SAFETY: as the caller promises.
        return unsafe { write_address(address, len, peer) };
    }
    // SAFETY: as the caller promises.
    unsafe { name(fd, address, len, real::getpeername, |connection| connection.peer) }
}

/// Calls `getpeername` or `getsockname` of the C library. If the descriptor turns out to be a VMCI
/// connection that another program made, stores the address that `tcp` returns for it instead.
///
/// # Safety
/// `address` and `len` as for `real`.
unsafe fn name(
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
    real: unsafe fn(c_int, *mut sockaddr, *mut socklen_t) -> c_int,
    tcp: impl FnOnce(Connection) -> SocketAddr,
) -> c_int {
    // SAFETY: as the caller promises.
    let room = (!len.is_null()).then(|| unsafe { len.read_unaligned() });
    // SAFETY: as the caller promises.
    let result = unsafe { real(fd, address, len) };
    let (0, Some(room)) = (result, room) else { return result };
    // SAFETY: the real function has accepted them, and has stored the length of its own name.
    let family = unsafe { family_of(address, len.read_unaligned().min(room)) };
    if !matches!(family, Some(libc::AF_VSOCK | libc::AF_UNIX)) {
        return result;
    }
    let Some(value) = guard(None, || adopt::connection(fd).map(tcp)) else { return result };
    // SAFETY: as the caller promises.
    unsafe { len.write_unaligned(room) };
    // SAFETY: as the caller promises.
    unsafe { write_address(address, len, value) }
}

/// `getsockname(2)`.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn getsockname(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int {
    if let Some(slot) = datagram::find(fd) {
        // SAFETY: as the caller promises.
        return unsafe { datagrams::write_address(address, len, datagram::local(slot)) };
    }
    if TABLE.is_held(fd)
        && let Some(local) = guard(None, || names::local(fd))
    {
        // SAFETY: as the caller promises.
        return unsafe { write_address(address, len, local) };
    }
    // SAFETY: as the caller promises.
    unsafe { name(fd, address, len, real::getsockname, |connection| names::local_of(fd, connection)) }
}

/// `shutdown(2)`.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn shutdown(fd: c_int, how: c_int) -> c_int {
    if rings::concerns(fd) {
        guard((), || {
            if rings::is_attached(fd) {
                rings::shut_down(fd, how);
            }
        });
    }
    if gather::is_on() && guard(false, || gather::shuts_down(fd, how)) {
        return 0;
    }
    // SAFETY: takes numbers only.
    let result = unsafe { real::shutdown(fd, how) };
    if result == 0
        && how != libc::SHUT_WR
        && let Some(listener) = guard(None, || listener(fd))
    {
        guard((), || descriptors::shut_down(fd, listener));
    }
    result
}
