//! Receives through the rings of a connection.

use std::ffi::{c_int, c_uint, c_void};
use std::time::Instant;

use libc::{iovec, mmsghdr, msghdr, size_t, ssize_t, timespec};
use rustix::io::Errno;

use super::super::fail;
use super::super::waits::duration;
use crate::real;
use crate::rings::{self, Target};
use crate::sys::Room;

/// Receives through the rings of a connection, if it has some: into the room that `count`
/// structures describe. `too_many` is the error for more structures than the kernel takes. `None`
/// if the program's own call goes to the kernel.
///
/// # Safety
/// As for `readv`.
pub(super) unsafe fn from_rings(
    fd: c_int,
    parts: *const iovec,
    count: usize,
    flags: c_int,
    too_many: Errno,
) -> Option<ssize_t> {
    const OTHERS: c_int = libc::MSG_OOB | libc::MSG_ERRQUEUE;
    /// Flags that change nothing if there are bytes.
    const USUAL: c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_CMSG_CLOEXEC;
    if !rings::concerns(fd) || flags & OTHERS != 0 {
        return None;
    }
    // SAFETY: takes nothing. This function has no destructors.
    unsafe { real::pthread_testcancel() };
    // SAFETY: as the caller promises.
    let Some(mut room) = (unsafe { Room::new(parts, count) }) else {
        return Some(fail(if count > libc::UIO_MAXIOV as usize { too_many } else { Errno::FAULT }));
    };
    if flags & !USUAL == 0
        && let Some(count) = rings::receive_plainly(fd, &mut room)
    {
        return Some(count.cast_signed());
    }
    let mut target =
        if flags & libc::MSG_TRUNC == 0 { Target::Room(room) } else { Target::Nowhere(room.len()) };
    Some(match rings::receive(fd, &mut target, flags)? {
        Ok(count) => count.cast_signed(),
        Err(error) => fail(error),
    })
}

/// Receives into one buffer through the rings of a connection, as [`from_rings`] does.
///
/// # Safety
/// As for `read`.
pub(super) unsafe fn bytes_from_rings(
    fd: c_int,
    bytes: *mut c_void,
    len: size_t,
    flags: c_int,
) -> Option<ssize_t> {
    let part = iovec { iov_base: bytes, iov_len: len };
    // SAFETY: as the caller promises.
    unsafe { from_rings(fd, &raw const part, 1, flags, Errno::INVAL) }
}

/// Receives a message through the rings of a connection, if it has some.
///
/// # Safety
/// As for recvmsg.
pub(super) unsafe fn message_from_rings(fd: c_int, message: *mut msghdr, flags: c_int) -> Option<ssize_t> {
    if !rings::concerns(fd) {
        return None;
    }
    // SAFETY: as the caller promises.
    let (parts, count) = unsafe { ((*message).msg_iov, (*message).msg_iovlen) };
    // SAFETY: as the caller promises.
    let received = unsafe { from_rings(fd, parts, count, flags, Errno::MSGSIZE) }?;
    if received >= 0 {
        // SAFETY: as the caller promises.
        unsafe { ((*message).msg_namelen, (*message).msg_controllen, (*message).msg_flags) = (0, 0, 0) };
    }
    Some(received)
}

/// Receives messages through the rings of a connection, one after the other.
///
/// # Safety
/// As for recvmmsg.
pub(super) unsafe fn messages_from_rings(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *const timespec,
) -> Option<c_int> {
    const MOST: c_uint = 1024;
    if !rings::concerns(fd) || messages.is_null() {
        return None;
    }
    // SAFETY: as the caller promises.
    let time = unsafe { duration(timeout) };
    let until = time.and_then(|time| Instant::now().checked_add(time));
    let (mut done, mut flags_now) = (0, flags & !libc::MSG_WAITFORONE);
    while done < count.min(MOST) {
        // SAFETY: as the caller promises.
        let one = unsafe { messages.add(done as usize) };
        // SAFETY: as the caller promises.
        let Some(received) = (unsafe { message_from_rings(fd, &raw mut (*one).msg_hdr, flags_now) }) else {
            // It has left the rings.
            return (done > 0).then_some(done.cast_signed());
        };
        if received < 0 {
            return Some(if done > 0 { done.cast_signed() } else { -1 });
        }
        // SAFETY: as the caller promises.
        unsafe { (*one).msg_len = received as c_uint };
        done += 1;
        if flags & libc::MSG_WAITFORONE != 0 {
            flags_now |= libc::MSG_DONTWAIT;
        }
        // The end of the stream ends the call.
        if received == 0 || until.is_some_and(|until| Instant::now() >= until) {
            break;
        }
    }
    Some(done.cast_signed())
}
