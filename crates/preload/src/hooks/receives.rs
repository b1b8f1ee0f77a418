//! Receives that differ on a VMCI socket: with an address, with `MSG_TRUNC`, with `MSG_PEEK` and
//! `MSG_WAITALL` together, with descriptors. All others go to the kernel alone.

use std::ffi::{c_int, c_void};
use std::time::{Duration, Instant};

use libc::{msghdr, size_t, sockaddr, socklen_t, ssize_t};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::net::sockopt::{self, Timeout};
use rustix::thread::{NanosleepRelativeResult, nanosleep};

use super::guard;
use crate::lookup::connection;
use crate::state::{TABLE, map};
use crate::sys::at;
use crate::{real, rights};

const PEEK_ALL: c_int = libc::MSG_PEEK | libc::MSG_WAITALL;

fn is_vmci(fd: c_int) -> bool {
    TABLE.is_held(fd) && guard(false, || connection(fd).is_some())
}

fn is_special(fd: c_int, flags: c_int) -> bool {
    (flags & libc::MSG_TRUNC != 0 || flags & PEEK_ALL == PEEK_ALL) && is_vmci(fd)
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
    // SAFETY: as the caller promises.
    let receive = |flags| unsafe { real::recv(fd, bytes, len, flags) };
    if is_special(fd, flags) { special(fd, len, flags, &receive) } else { receive(flags) }
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
    if from.is_null() || !is_vmci(fd) {
        // SAFETY: as the caller promises.
        let receive = |flags| unsafe { real::recvfrom(fd, bytes, len, flags, from, from_len) };
        return if is_special(fd, flags) { special(fd, len, flags, &receive) } else { receive(flags) };
    }
    // SAFETY: as the caller promises.
    let received = unsafe { recv(fd, bytes, len, flags) };
    if received >= 0 && !from_len.is_null() {
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
    if is_vmci(fd) {
        let received = if is_special(fd, flags) {
            // SAFETY: as the caller promises.
            special(fd, unsafe { room(message) }, flags, &receive)
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

/// Number of bytes for which a message has room.
///
/// # Safety
/// As for the message of recvmsg.
unsafe fn room(message: *const msghdr) -> usize {
    // SAFETY: as the caller promises.
    let (parts, count) = unsafe { ((*message).msg_iov, (*message).msg_iovlen) };
    // The kernel refuses more parts than that (`UIO_MAXIOV`).
    let parts = (0..count.min(1024)).map(|part| {
        // SAFETY: as the caller promises.
        unsafe { (*parts.add(part)).iov_len }
    });
    parts.fold(0, usize::saturating_add)
}

/// Receives up to `len` bytes of a VMCI connection as TCP does. `receive` is the program's own call
/// with other flags.
fn special(fd: c_int, len: usize, flags: c_int, receive: &dyn Fn(c_int) -> ssize_t) -> ssize_t {
    if flags & libc::MSG_TRUNC != 0 { discard(fd, len, flags) } else { peek_all(fd, len, flags, receive) }
}

/// Discards bytes, or with `MSG_PEEK` counts the first ones (`MSG_TRUNC`, `man 7 tcp`).
fn discard(fd: c_int, len: usize, flags: c_int) -> ssize_t {
    let mut bytes = [0u8; 4096];
    let mut flags = flags & !libc::MSG_TRUNC;
    let mut total = 0;
    loop {
        let now = bytes.len().min(len - total);
        // SAFETY: the buffer is this frame's and has at least this length.
        let count = unsafe { real::recv(fd, bytes.as_mut_ptr().cast(), now, flags) };
        if count <= 0 {
            return if total > 0 { total.cast_signed() } else { count };
        }
        total += count as usize;
        if total >= len || flags & libc::MSG_PEEK != 0 {
            return total.cast_signed();
        }
        if flags & libc::MSG_WAITALL == 0 {
            flags |= libc::MSG_DONTWAIT;
        }
    }
}

/// Peeks until `len` bytes are there (`MSG_PEEK` with `MSG_WAITALL`), the peer has shut down its
/// half, a signal was handled, or the time is over.
fn peek_all(fd: c_int, len: usize, flags: c_int, receive: &dyn Fn(c_int) -> ssize_t) -> ssize_t {
    const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
    const SHORT: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
    let Ok(socket) = at(fd) else { return receive(flags) };
    let started = Instant::now();
    let timeout: Option<Duration> = sockopt::socket_timeout(socket, Timeout::Recv).ok().flatten();
    let waits = flags & libc::MSG_DONTWAIT == 0
        && fcntl_getfl(socket).is_ok_and(|flags| !flags.contains(OFlags::NONBLOCK));
    loop {
        let mut polled = [PollFd::from_borrowed_fd(socket, PollFlags::RDHUP)];
        let ended = poll(&mut polled, Some(&NOW)).is_ok_and(|count| count > 0);
        let count = receive(flags & !libc::MSG_WAITALL);
        let is_over = timeout.is_some_and(|timeout| started.elapsed() >= timeout);
        if count <= 0 || count as usize >= len || ended || !waits || is_over {
            return count;
        }
        if !matches!(nanosleep(&SHORT), NanosleepRelativeResult::Ok) {
            return count;
        }
    }
}
