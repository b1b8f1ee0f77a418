//! `connect`, `getpeername`, `getsockname` and `shutdown`.

use std::ffi::c_int;

use libc::{sockaddr, socklen_t};
use rustix::io::Errno;

use super::{fail, guard, read_address, write_address};
use crate::connect::{Attempt, again, attempt};
use crate::lookup::{connection, listener};
use crate::state::{TABLE, map_for};
use crate::sys::errno;
use crate::{adopt, descriptors, names, real};

/// `connect(2)`.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn connect(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
    let mut target = fd;
    if TABLE.is_held(fd) {
        if guard(false, || connection(fd).is_some()) {
            return guard(None, || again(fd)).map_or(0, fail);
        }
        target = guard(None, || listener(fd)).map_or(fd, |listener| listener.tcp);
    }
    // SAFETY: as the caller promises.
    let to = unsafe { read_address(address, len) };
    let decision = guard(Attempt::Tcp(None), || match to {
        Some(to) if target == fd => map_for(fd).map_or(Attempt::Tcp(None), |map| attempt(fd, to, map)),
        _ => Attempt::Tcp(None),
    });
    let why = match decision {
        Attempt::Done(Ok(())) => return 0,
        Attempt::Done(Err(error)) => return fail(error),
        Attempt::Tcp(why) => why,
    };
    // SAFETY: as the caller promises.
    let result = unsafe { real::connect(target, address, len) };
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

/// `getpeername(2)`.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn getpeername(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int {
    if TABLE.is_held(fd) {
        if let Some(listener) = guard(None, || listener(fd)) {
            // SAFETY: as the caller promises.
            return unsafe { real::getpeername(listener.tcp, address, len) };
        }
        if let Some(peer) = guard(None, || names::peer(fd)) {
            // SAFETY: as the caller promises.
            return unsafe { write_address(address, len, peer) };
        }
    }
    // SAFETY: as the caller promises.
    let result = unsafe { real::getpeername(fd, address, len) };
    // SAFETY: the real function has accepted them.
    if result == 0 && unsafe { is_adopted(fd, address, len) } {
        // SAFETY: as the caller promises; this time the connection is in the table.
        return unsafe { getpeername(fd, address, len) };
    }
    result
}

/// Adds the descriptor to the table if it is a VMCI connection that another program made. The
/// kernel has already stored its name. Returns whether it is one.
///
/// # Safety
/// `len` points to the length of what `address` points to.
unsafe fn is_adopted(fd: c_int, address: *const sockaddr, len: *const socklen_t) -> bool {
    // SAFETY: as the caller promises.
    let family = unsafe {
        if len.read_unaligned() < 2 { 0 } else { address.cast::<libc::sa_family_t>().read_unaligned() }
    };
    matches!(c_int::from(family), libc::AF_VSOCK | libc::AF_UNIX)
        && guard(false, || adopt::connection(fd).is_some())
}

/// `getsockname(2)`.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn getsockname(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int {
    if TABLE.is_held(fd) {
        if let Some(listener) = guard(None, || listener(fd)) {
            // SAFETY: as the caller promises.
            return unsafe { real::getsockname(listener.tcp, address, len) };
        }
        if let Some(local) = guard(None, || names::local(fd)) {
            // SAFETY: as the caller promises.
            return unsafe { write_address(address, len, local) };
        }
    }
    // SAFETY: as the caller promises.
    let result = unsafe { real::getsockname(fd, address, len) };
    // SAFETY: the real function has accepted them.
    if result == 0 && unsafe { is_adopted(fd, address, len) } {
        // SAFETY: as the caller promises; this time the connection is in the table.
        return unsafe { getsockname(fd, address, len) };
    }
    result
}

/// `shutdown(2)`.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn shutdown(fd: c_int, how: c_int) -> c_int {
    let Some(listener) = guard(None, || listener(fd)) else {
        // SAFETY: takes numbers only.
        return unsafe { real::shutdown(fd, how) };
    };
    // SAFETY: takes numbers only.
    let result = unsafe { real::shutdown(listener.tcp, how) };
    if result == 0 && how != libc::SHUT_WR {
        guard((), || descriptors::shut_down(fd, listener));
    }
    result
}
