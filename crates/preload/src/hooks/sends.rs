//! Functions that send. A send on a connection with a channel goes through its rings (`by_rings`).
//! The others differ from the kernel's own call only on a VMCI socket: small ones if they are
//! gathered (`gathered`), with an address, with urgent data, and to a peer that has gone. Before a
//! message on any socket passes descriptors, connections among them leave their channels, and
//! listeners give up their VMCI ports. Sends of datagram sockets are in `datagrams`.
//!
//! Kernels before 6.7 send no `SIGPIPE` for `AF_VSOCK`; there this library does.

mod by_rings;
mod gathered;

use std::ffi::{c_int, c_uint, c_void};

use libc::{iovec, mmsghdr, msghdr, size_t, sockaddr, socklen_t, ssize_t};
use rustix::io::Errno;

use self::by_rings::{bytes_to_rings, messages_to_rings, to_rings};
pub(super) use self::gathered::cleared;
use self::gathered::{gathered_bytes, gathered_parts};
use super::datagrams::{self, NOBODY};
use super::{fail, guard, is_vmci};
use crate::datagram::find;
use crate::say::complain;
use crate::state::TABLE;
use crate::sys::{Pieces, errno, kernel_signals, option, raise_sigpipe, set_errno};
use crate::{gather, real, rights, rings};

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
    if sent < 0 {
        gather::refused(fd);
    }
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
    if let Some(slot) = find(fd) {
        let part = iovec { iov_base: bytes.cast_mut(), iov_len: len };
        // SAFETY: as the caller promises.
        return unsafe { datagrams::send(fd, slot, (&raw const part, 1), 0, NOBODY) };
    }
    // SAFETY: as the caller promises.
    if let Some(result) = unsafe { bytes_to_rings(fd, bytes, len, 0) } {
        return result;
    }
    // SAFETY: as the caller promises.
    if let Some(result) = unsafe { gathered_bytes(fd, bytes, len, 0) } {
        return result;
    }
    // SAFETY: as the caller promises.
    signalled(fd, 0, unsafe { real::write(fd, bytes, len) })
}

/// Tells whether `count` structures describe no bytes.
///
/// # Safety
/// As for `writev`.
unsafe fn is_nothing(parts: *const iovec, count: c_int) -> bool {
    // SAFETY: as the caller promises. A negative count is more than the kernel takes.
    unsafe { Pieces::new(parts, count as usize) }.is_some_and(|pieces| pieces.len() == 0)
}

/// `writev(2)`. Without bytes it succeeds on each socket, even if `write` fails with `EPIPE`: the
/// kernel does not ask the socket then.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    if let Some(slot) = find(fd) {
        let Ok(count) = usize::try_from(count) else { return fail(Errno::INVAL) };
        // SAFETY: as the caller promises.
        return unsafe { datagrams::send(fd, slot, (parts, count), 0, NOBODY) };
    }
    // SAFETY: as the caller promises.
    if TABLE.may_be_connected(fd) && unsafe { is_nothing(parts, count) } {
        // SAFETY: as the caller promises.
        return unsafe { real::writev(fd, parts, count) };
    }
    // SAFETY: as the caller promises.
    if let Some(result) = unsafe { to_rings(fd, parts, count as usize, 0, Errno::INVAL) } {
        return result;
    }
    // SAFETY: as the caller promises.
    if let Some(result) = unsafe { gathered_parts(fd, parts, count as usize, 0, false) } {
        return result;
    }
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
    if let Some(slot) = find(fd) {
        let part = iovec { iov_base: bytes.cast_mut(), iov_len: len };
        // SAFETY: as the caller promises.
        return unsafe { datagrams::send(fd, slot, (&raw const part, 1), flags, NOBODY) };
    }
    if is_refused(fd, flags) {
        return fail(Errno::OPNOTSUPP);
    }
    // SAFETY: as the caller promises.
    if let Some(result) = unsafe { bytes_to_rings(fd, bytes, len, flags) } {
        return result;
    }
    // SAFETY: as the caller promises.
    if let Some(result) = unsafe { gathered_bytes(fd, bytes, len, flags) } {
        return result;
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
    if let Some(slot) = find(fd) {
        let part = iovec { iov_base: bytes.cast_mut(), iov_len: len };
        // SAFETY: as the caller promises.
        return unsafe { datagrams::send(fd, slot, (&raw const part, 1), flags, (to, to_len)) };
    }
    if is_refused(fd, flags) {
        return fail(Errno::OPNOTSUPP);
    }
    // SAFETY: as the caller promises.
    if let Some(result) = unsafe { bytes_to_rings(fd, bytes, len, flags) } {
        return result;
    }
    // SAFETY: as the caller promises.
    if let Some(result) = unsafe { gathered_bytes(fd, bytes, len, flags) } {
        return result;
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
    if let Some(slot) = find(fd)
        && !message.is_null()
    {
        // SAFETY: as the caller promises.
        let message = unsafe { message.read() };
        let to = (message.msg_name.cast_const().cast(), message.msg_namelen);
        // SAFETY: as the caller promises.
        return unsafe { datagrams::send(fd, slot, (message.msg_iov, message.msg_iovlen), flags, to) };
    }
    if is_refused(fd, flags) {
        return fail(Errno::OPNOTSUPP);
    }
    if !message.is_null() && is_vmci(fd) {
        // SAFETY: as the caller promises.
        let mut copy = unsafe { message.read() };
        copy.msg_name = std::ptr::null_mut();
        copy.msg_namelen = 0;
        let (parts, count, alone) = (copy.msg_iov, copy.msg_iovlen, !copy.msg_control.is_null());
        if alone && copy.msg_controllen > 0 {
            guard((), || rings::leave(fd));
        }
        // SAFETY: as the caller promises.
        if let Some(result) = unsafe { to_rings(fd, parts, count, flags, Errno::MSGSIZE) } {
            return result;
        }
        // SAFETY: as the caller promises.
        if let Some(result) = unsafe { gathered_parts(fd, parts, count, flags, alone) } {
            return result;
        }
        // SAFETY: as the caller promises; a null address is valid.
        return signalled(fd, flags, unsafe { real::sendmsg(fd, &raw const copy, flags) });
    }
    // SAFETY: as the caller promises.
    let send = || unsafe { real::sendmsg(fd, message, flags) };
    // SAFETY: as the caller promises.
    let Some(control) = (unsafe { control_data(message) }) else { return send() };
    let passes = guard(false, || rights::pass(control));
    let sent = send();
    if sent < 0 && passes {
        let error = errno();
        guard((), || rights::keep(control));
        return fail(error);
    }
    sent
}

/// The control data of a message; `None` if it has none.
///
/// # Safety
/// `message` is null or as for sendmsg. Its control data stays as long as the result is used.
unsafe fn control_data<'a>(message: *const msghdr) -> Option<&'a [u8]> {
    if message.is_null() {
        return None;
    }
    // SAFETY: as the caller promises.
    let (control, len) = unsafe { ((*message).msg_control, (*message).msg_controllen) };
    // SAFETY: as the caller promises; bytes have no alignment and may have any value.
    (!control.is_null()).then(|| unsafe { std::slice::from_raw_parts(control.cast::<u8>(), len) })
}

/// `sendmmsg(2)`: prepares descriptors that are passed as [`sendmsg`] does.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn sendmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
) -> c_int {
    if find(fd).is_some() {
        // SAFETY: as the caller promises.
        return unsafe { datagrams::send_messages(fd, messages, count, flags) };
    }
    // SAFETY: as the caller promises.
    if let Some(count) = unsafe { messages_to_rings(fd, messages, count, flags) } {
        return count;
    }
    if let Some(result) = cleared(fd, flags) {
        return result as c_int;
    }
    // SAFETY: as the caller promises.
    let send = || unsafe { real::sendmmsg(fd, messages, count, flags) };
    if messages.is_null() || is_vmci(fd) {
        return send();
    }
    // The kernel takes no more messages in one call (`UIO_MAXIOV`).
    let count = count.min(libc::UIO_MAXIOV as c_uint) as usize;
    let control = |index: usize| {
        // SAFETY: as the caller promises.
        unsafe { control_data(&raw const (*messages.add(index)).msg_hdr) }
    };
    let mut passes = false;
    for control in (0..count).filter_map(control) {
        passes |= guard(false, || rights::pass(control));
    }
    let sent = send();
    if passes {
        let error = errno();
        for control in (usize::try_from(sent).unwrap_or(0)..count).filter_map(control) {
            guard((), || rights::keep(control));
        }
        set_errno(error);
    }
    sent
}
