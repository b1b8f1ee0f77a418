//! Sends that differ on a VMCI socket: with an address, with urgent data, with descriptors, and to
//! a peer that has gone. All others go to the kernel alone.
//!
//! Kernels before 6.7 send no `SIGPIPE` for `AF_VSOCK`; there this library does.

use std::ffi::{c_int, c_void};

use libc::{iovec, msghdr, size_t, sockaddr, socklen_t, ssize_t};
use rustix::io::Errno;

use super::{fail, guard};
use crate::lookup::connection;
use crate::say::complain;
use crate::state::TABLE;
use crate::sys::{errno, kernel_signals, option, raise_sigpipe};
use crate::{real, rights};

fn is_vmci(fd: c_int) -> bool {
    TABLE.is_held(fd) && guard(false, || connection(fd).is_some())
}

/// Refuses urgent data. `AF_VSOCK` has none, and that of a Unix socket would not reach the guest.
fn is_refused(fd: c_int, flags: c_int) -> bool {
    if flags & libc::MSG_OOB == 0 || !is_vmci(fd) {
        return false;
    }
    guard((), || {
        complain!(
            "urgent data (MSG_OOB) refused (EOPNOTSUPP): a VMCI socket does not have it\n\
             hint: if the program requires it, remove this peer from the map"
        );
    });
    true
}

/// Sends `SIGPIPE` for a send that failed with `EPIPE`, unless the kernel has done so.
fn signalled(fd: c_int, flags: c_int, sent: ssize_t) -> ssize_t {
    if sent < 0
        && TABLE.may_be_connected(fd)
        && errno() == Errno::PIPE
        && flags & libc::MSG_NOSIGNAL == 0
        && !kernel_signals()
    {
        if option(fd, libc::SOL_SOCKET, libc::SO_DOMAIN) == Ok(libc::AF_VSOCK) {
            raise_sigpipe();
        }
        return fail(Errno::PIPE);
    }
    sent
}

/// `write(2)`.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn write(fd: c_int, bytes: *const c_void, len: size_t) -> ssize_t {
    // SAFETY: as the caller promises.
    signalled(fd, 0, unsafe { real::write(fd, bytes, len) })
}

/// `writev(2)`.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: as the caller promises.
    signalled(fd, 0, unsafe { real::writev(fd, parts, count) })
}

/// `send(2)`.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn send(
    fd: c_int,
    bytes: *const c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    if is_refused(fd, flags) {
        return fail(Errno::OPNOTSUPP);
    }
    // SAFETY: as the caller promises.
    signalled(fd, flags, unsafe { real::send(fd, bytes, len, flags) })
}

/// `sendto(2)`: removes the address, which TCP ignores and VMCI sockets refuse.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn sendto(
    fd: c_int,
    bytes: *const c_void,
    len: size_t,
    flags: c_int,
    to: *const sockaddr,
    to_len: socklen_t,
) -> ssize_t {
    if is_refused(fd, flags) {
        return fail(Errno::OPNOTSUPP);
    }
    let (to, to_len) = if !to.is_null() && is_vmci(fd) { (std::ptr::null(), 0) } else { (to, to_len) };
    // SAFETY: as the caller promises; a null address is valid.
    signalled(fd, flags, unsafe { real::sendto(fd, bytes, len, flags, to, to_len) })
}

/// `sendmsg(2)`: as [`sendto`]. The VMCI port of a listener that is passed to another process
/// becomes free for that.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    if is_refused(fd, flags) {
        return fail(Errno::OPNOTSUPP);
    }
    if !message.is_null() && is_vmci(fd) {
        // SAFETY: as the caller promises.
        let mut copy = unsafe { message.read() };
        copy.msg_name = std::ptr::null_mut();
        copy.msg_namelen = 0;
        // SAFETY: as the caller promises; a null address is valid.
        return signalled(fd, flags, unsafe { real::sendmsg(fd, &raw const copy, flags) });
    }
    // SAFETY: as the caller promises.
    let send = || unsafe { real::sendmsg(fd, message, flags) };
    if message.is_null() {
        return send();
    }
    // SAFETY: as the caller promises.
    let (control, len) = unsafe { ((*message).msg_control, (*message).msg_controllen) };
    if control.is_null() {
        return send();
    }
    // SAFETY: as the caller promises; bytes have no alignment and may have any value.
    let control = unsafe { std::slice::from_raw_parts(control.cast::<u8>(), len) };
    let passes = guard(false, || rights::pass(control));
    let sent = send();
    if sent < 0 && passes {
        let error = errno();
        guard((), || rights::keep(control));
        return fail(error);
    }
    sent
}
