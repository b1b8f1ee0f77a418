//! Receives by flags that a VMCI socket does not know, by packets.

use std::ffi::c_int;
use std::time::{Duration, Instant};

use libc::{msghdr, ssize_t};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::net::sockopt::{self, Timeout};
use rustix::thread::{NanosleepRelativeResult, nanosleep};

use crate::real;
use crate::sys::{at, count_unread};

/// Number of bytes for which a message has room.
///
/// # Safety
/// As for the message of recvmsg.
pub(super) unsafe fn room(message: *const msghdr) -> usize {
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
pub(super) fn special(fd: c_int, len: usize, flags: c_int, receive: &dyn Fn(c_int) -> ssize_t) -> ssize_t {
    if flags & libc::MSG_TRUNC != 0 { discard(fd, len, flags) } else { peek_all(fd, len, flags, receive) }
}

/// Discards bytes, or with `MSG_PEEK` counts the first ones (`MSG_TRUNC`, `man 7 tcp`).
fn discard(fd: c_int, len: usize, flags: c_int) -> ssize_t {
    let mut flags = flags & !libc::MSG_TRUNC;
    if flags & libc::MSG_PEEK != 0 {
        let (mut first, flags) = (0u8, flags & !libc::MSG_WAITALL);
        // The thread waits for a byte in the C library's function, in which it may be cancelled.
        //
        // SAFETY: the buffer is this frame's and has this length.
        let count = unsafe { real::recv(fd, (&raw mut first).cast(), len.min(1), flags) };
        if count <= 0 {
            return count;
        }
        return count_unread(fd, len).map_or(count, usize::cast_signed);
    }
    let mut bytes = [0u8; 4096];
    let mut total = 0;
    loop {
        let now = bytes.len().min(len - total);
        // SAFETY: the buffer is this frame's and has at least this length.
        let count = unsafe { real::recv(fd, bytes.as_mut_ptr().cast(), now, flags) };
        if count <= 0 {
            return if total > 0 { total.cast_signed() } else { count };
        }
        total += count as usize;
        if total >= len {
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
