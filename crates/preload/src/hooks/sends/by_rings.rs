//! Sends through the rings of a connection.

use std::ffi::{c_int, c_uint, c_void};

use libc::{iovec, mmsghdr, size_t, ssize_t};
use rustix::io::Errno;

use super::super::{fail, guard};
use super::sendmsg;
use crate::sys::{Pieces, raise_sigpipe};
use crate::{real, rings};

/// Sends through the rings of a connection, if it has some: the bytes that `count` structures
/// describe. `too_many` is the error for more structures than the kernel takes. `None` if the
/// program's own call goes to the kernel.
///
/// # Safety
/// As for `writev`.
pub(super) unsafe fn to_rings(
    fd: c_int,
    parts: *const iovec,
    count: usize,
    flags: c_int,
    too_many: Errno,
) -> Option<ssize_t> {
    /// Flags that change nothing else for a stream.
    const USUAL: c_int =
        libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_MORE | libc::MSG_EOR | libc::MSG_CONFIRM;
    if !rings::concerns(fd) {
        return None;
    }
    if flags & !USUAL != 0 {
        guard((), || rings::leave(fd));
        return None;
    }
    // SAFETY: takes nothing. This function has no destructors.
    unsafe { real::pthread_testcancel() };
    // SAFETY: as the caller promises.
    let Some(pieces) = (unsafe { Pieces::new(parts, count) }) else {
        return Some(fail(if count > libc::UIO_MAXIOV as usize { too_many } else { Errno::FAULT }));
    };
    if let Some(count) = rings::send_plainly(fd, &pieces) {
        return Some(count.cast_signed());
    }
    Some(match rings::send(fd, &pieces, flags)? {
        Ok(count) => count.cast_signed(),
        Err(error) => {
            if error == Errno::PIPE && flags & libc::MSG_NOSIGNAL == 0 {
                raise_sigpipe();
            }
            fail(error)
        }
    })
}

/// Sends one piece through the rings of a connection, as [`to_rings`] does.
///
/// # Safety
/// As for `write`.
pub(super) unsafe fn bytes_to_rings(
    fd: c_int,
    bytes: *const c_void,
    len: size_t,
    flags: c_int,
) -> Option<ssize_t> {
    let part = iovec { iov_base: bytes.cast_mut(), iov_len: len };
    // SAFETY: as the caller promises.
    unsafe { to_rings(fd, &raw const part, 1, flags, Errno::INVAL) }
}

/// Sends messages through the rings of a connection, one after the other.
///
/// # Safety
/// As for sendmmsg.
pub(super) unsafe fn messages_to_rings(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
) -> Option<c_int> {
    const MOST: c_uint = 1024;
    if !rings::concerns(fd) || messages.is_null() {
        return None;
    }
    let mut done = 0;
    while done < count.min(MOST) && rings::concerns(fd) {
        // SAFETY: as the caller promises.
        let one = unsafe { messages.add(done as usize) };
        // SAFETY: as the caller promises.
        let sent = unsafe { sendmsg(fd, &raw const (*one).msg_hdr, flags) };
        if sent < 0 {
            return Some(if done > 0 { done.cast_signed() } else { -1 });
        }
        // SAFETY: as the caller promises.
        unsafe { (*one).msg_len = sent as c_uint };
        done += 1;
    }
    // Otherwise it has left the rings.
    (done > 0 || count == 0).then_some(done.cast_signed())
}
