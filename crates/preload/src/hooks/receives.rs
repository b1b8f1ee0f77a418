//! Functions that receive. A receive on a connection with a channel takes its bytes from the rings
//! (`by_rings`). The others differ from the kernel's own call only on a VMCI socket: with an
//! address, with `MSG_TRUNC`, with `MSG_PEEK` and `MSG_WAITALL` together (`special`). Descriptors
//! that come in messages are examined. Before a receive of any kind waits, gathered bytes are sent.
//! `datagrams` receives from datagram sockets.

mod by_rings;
mod special;

use std::ffi::{c_int, c_uint, c_void};

use libc::{iovec, mmsghdr, msghdr, size_t, sockaddr, socklen_t, ssize_t, timespec};
use rustix::io::Errno;

use self::by_rings::{bytes_from_rings, from_rings, message_from_rings, messages_from_rings};
use self::special::{room, special};
use super::{datagrams, fail, guard, is_vmci};
use crate::datagram::find;
use crate::state::map;
use crate::{gather, real, rights, rings};

const PEEK_ALL: c_int = libc::MSG_PEEK | libc::MSG_WAITALL;
/// No room for the source of a datagram.
const NOWHERE: (*mut sockaddr, *mut socklen_t) = (std::ptr::null_mut(), std::ptr::null_mut());

fn is_special(fd: c_int, flags: c_int) -> bool {
    (flags & libc::MSG_TRUNC != 0 || flags & PEEK_ALL == PEEK_ALL) && is_vmci(fd)
}

/// Calls a function that receives. If nothing is there yet, gathered bytes are sent before.
fn receiving(fd: c_int, receive: impl FnOnce() -> ssize_t) -> ssize_t {
    if !gather::is_on() {
        return receive();
    }
    guard((), || gather::receives(fd));
    let count = receive();
    gather::received(fd, count);
    count
}

/// `read(2)`.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn read(fd: c_int, bytes: *mut c_void, len: size_t) -> ssize_t {
    if find(fd).is_some() {
        // SAFETY: as the caller promises.
        return receiving(fd, || unsafe { datagrams::receive_into(fd, bytes, len, 0, NOWHERE) });
    }
    // SAFETY: as the caller promises.
    if let Some(count) = unsafe { bytes_from_rings(fd, bytes, len, 0) } {
        return count;
    }
    // SAFETY: as the caller promises.
    receiving(fd, || unsafe { real::read(fd, bytes, len) })
}

/// `read(2)` of programs that check the sizes of buffers (`_FORTIFY_SOURCE`).
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn __read_chk(
    fd: c_int,
    bytes: *mut c_void,
    len: size_t,
    size: size_t,
) -> ssize_t {
    if size < len {
        std::process::abort();
    }
    // SAFETY: as the caller promises.
    unsafe { read(fd, bytes, len) }
}

/// `readv(2)`.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    if find(fd).is_some() {
        let Ok(count) = usize::try_from(count) else { return fail(Errno::INVAL) };
        // SAFETY: as the caller promises.
        let receive = || unsafe { datagrams::receive(fd, (parts, count), 0) };
        return receiving(fd, || receive().map_or(-1, |received| received.len));
    }
    // SAFETY: as the caller promises.
    if let Some(count) = unsafe { from_rings(fd, parts, count as usize, 0, Errno::INVAL) } {
        return count;
    }
    // SAFETY: as the caller promises.
    receiving(fd, || unsafe { real::readv(fd, parts, count) })
}

/// `recv(2)`.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn recv(
    fd: c_int,
    bytes: *mut c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    if find(fd).is_some() {
        // SAFETY: as the caller promises.
        return receiving(fd, || unsafe { datagrams::receive_into(fd, bytes, len, flags, NOWHERE) });
    }
    // SAFETY: as the caller promises.
    if let Some(count) = unsafe { bytes_from_rings(fd, bytes, len, flags) } {
        return count;
    }
    // SAFETY: as the caller promises.
    let receive = |flags| unsafe { real::recv(fd, bytes, len, flags) };
    receiving(fd, || if is_special(fd, flags) { special(fd, len, flags, &receive) } else { receive(flags) })
}

/// `recv(2)` of programs that check the sizes of buffers (`_FORTIFY_SOURCE`).
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn __recv_chk(
    fd: c_int,
    bytes: *mut c_void,
    len: size_t,
    size: size_t,
    flags: c_int,
) -> ssize_t {
    if size < len {
        std::process::abort();
    }
    // SAFETY: as the caller promises.
    unsafe { recv(fd, bytes, len, flags) }
}

/// `recvfrom(2)`: stores no address, as TCP.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn recvfrom(
    fd: c_int,
    bytes: *mut c_void,
    len: size_t,
    flags: c_int,
    from: *mut sockaddr,
    from_len: *mut socklen_t,
) -> ssize_t {
    if find(fd).is_some() {
        let from = (from, from_len);
        // SAFETY: as the caller promises.
        return receiving(fd, || unsafe { datagrams::receive_into(fd, bytes, len, flags, from) });
    }
    if !rings::concerns(fd) && (from.is_null() || !is_vmci(fd)) {
        // SAFETY: as the caller promises.
        let receive = |flags| unsafe { real::recvfrom(fd, bytes, len, flags, from, from_len) };
        let receive =
            || if is_special(fd, flags) { special(fd, len, flags, &receive) } else { receive(flags) };
        return receiving(fd, receive);
    }
    // SAFETY: as the caller promises.
    let received = unsafe { recv(fd, bytes, len, flags) };
    if received >= 0 && !from.is_null() && !from_len.is_null() {
        // SAFETY: as the caller promises.
        unsafe { from_len.write_unaligned(0) };
    }
    received
}

/// `recvfrom(2)` of programs that check the sizes of buffers (`_FORTIFY_SOURCE`).
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn __recvfrom_chk(
    fd: c_int,
    bytes: *mut c_void,
    len: size_t,
    size: size_t,
    flags: c_int,
    from: *mut sockaddr,
    from_len: *mut socklen_t,
) -> ssize_t {
    if size < len {
        std::process::abort();
    }
    // SAFETY: as the caller promises.
    unsafe { recvfrom(fd, bytes, len, flags, from, from_len) }
}

/// `recvmsg(2)`: as [`recvfrom`]. Descriptors that it receives are examined.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: as the caller promises.
    let receive = |flags| unsafe { real::recvmsg(fd, message, flags) };
    if message.is_null() {
        return receive(flags);
    }
    if find(fd).is_some() {
        // SAFETY: as the caller promises.
        return receiving(fd, || unsafe { datagrams::receive_message(fd, message, flags) });
    }
    // SAFETY: as the caller promises.
    if let Some(count) = unsafe { message_from_rings(fd, message, flags) } {
        return count;
    }
    // SAFETY: as the caller promises.
    receiving(fd, || unsafe { receive_message(fd, message, flags, &receive) })
}

/// Receives a message by the program's own call.
///
/// # Safety
/// As for recvmsg.
unsafe fn receive_message(
    fd: c_int,
    message: *mut msghdr,
    flags: c_int,
    receive: &dyn Fn(c_int) -> ssize_t,
) -> ssize_t {
    if is_vmci(fd) {
        let received = if is_special(fd, flags) {
            // SAFETY: as the caller promises.
            special(fd, unsafe { room(message) }, flags, receive)
        } else {
            receive(flags)
        };
        if received >= 0 {
            // SAFETY: as the caller promises.
            unsafe { (*message).msg_namelen = 0 };
        }
        return received;
    }
    let received = receive(flags);
    if received >= 0 && map().is_some() {
        // SAFETY: as the caller promises; the kernel has stored the length of the control data.
        let (control, len) = unsafe { ((*message).msg_control, (*message).msg_controllen) };
        if !control.is_null() && len > 0 {
            // SAFETY: as the caller promises; the kernel has filled these bytes.
            let control = unsafe { std::slice::from_raw_parts(control.cast::<u8>(), len) };
            guard((), || rights::receive(control));
        }
    }
    received
}

/// `recvmmsg(2)`.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn recvmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *mut timespec,
) -> c_int {
    if find(fd).is_some() {
        // SAFETY: as the caller promises.
        let receive = || unsafe { datagrams::receive_messages(fd, messages, count, flags, timeout) };
        return receiving(fd, || receive() as ssize_t) as c_int;
    }
    // SAFETY: as the caller promises.
    if let Some(count) = unsafe { messages_from_rings(fd, messages, count, flags, timeout) } {
        return count;
    }
    // SAFETY: as the caller promises.
    receiving(fd, || unsafe { real::recvmmsg(fd, messages, count, flags, timeout) } as ssize_t) as c_int
}
