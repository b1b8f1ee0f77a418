//! Descriptors in messages.

use std::ffi::{c_int, c_void};
use std::mem::size_of;
use std::os::fd::{OwnedFd, RawFd};

use super::{Answer, answer, owned};

/// Passes a descriptor by `sendmsg(2)`.
pub(crate) fn pass(socket: RawFd, fd: RawFd) -> Answer {
    with_descriptor(fd, |message| {
        // SAFETY: everything that the message points to lives until this returns.
        answer(unsafe { libc::sendmsg(socket, message, libc::MSG_NOSIGNAL) } as c_int)
    })
}

/// Passes a descriptor by `sendmmsg(2)`.
pub(crate) fn pass_at_once(socket: RawFd, fd: RawFd) -> Answer {
    with_descriptor(fd, |message| {
        let mut one = libc::mmsghdr { msg_hdr: *message, msg_len: 0 };
        // SAFETY: as above.
        answer(unsafe { libc::sendmmsg(socket, &raw mut one, 1, libc::MSG_NOSIGNAL) })
    })
}

/// Calls a function with a message of one byte and a descriptor.
fn with_descriptor(fd: RawFd, send: impl FnOnce(&libc::msghdr) -> Answer) -> Answer {
    let mut byte = *b"x";
    let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast::<c_void>(), iov_len: 1 };
    let mut control = [0u64; 4];
    // SAFETY: a structure of numbers and pointers, for which zero is valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    // SAFETY: only computes.
    message.msg_controllen = unsafe { libc::CMSG_SPACE(size_of::<c_int>() as u32) } as usize;
    // SAFETY: there is room for a header and a number.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(size_of::<c_int>() as u32) as usize;
        libc::CMSG_DATA(header).cast::<c_int>().write_unaligned(fd);
    }
    send(&message)
}

/// A function of the C library for several pieces.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Pieces {
    /// `writev(2)`.
    Write,
    /// `sendmsg(2)`.
    Send,
    /// `readv(2)`.
    Read,
    /// `recvmsg(2)`.
    Receive,
}

impl Pieces {
    /// Calls the function with this many empty pieces. Without any, it gets a null pointer.
    pub(crate) fn empty(self, fd: RawFd, count: u16) -> Answer {
        let mut all = vec![libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; count.into()];
        let parts = if count == 0 { std::ptr::null_mut() } else { all.as_mut_ptr() };
        // SAFETY: a structure of numbers and pointers, for which zero is valid.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        (message.msg_iov, message.msg_iovlen) = (parts, count.into());
        // SAFETY: so many pieces, all this frame's and empty.
        answer(unsafe {
            match self {
                Self::Write => libc::writev(fd, parts, count.into()),
                Self::Send => libc::sendmsg(fd, &raw const message, libc::MSG_NOSIGNAL),
                Self::Read => libc::readv(fd, parts, count.into()),
                Self::Receive => libc::recvmsg(fd, &raw mut message, 0),
            }
        } as c_int)
    }
}

/// Receives a descriptor by `recvmsg(2)`, with one byte. `None` at the end of the socket.
pub(crate) fn receive_descriptor(socket: RawFd) -> Option<OwnedFd> {
    let mut byte = [0u8; 1];
    let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast::<c_void>(), iov_len: 1 };
    let mut control = [0u64; 4];
    // SAFETY: a structure of numbers and pointers, for which zero is valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of::<[u64; 4]>();
    // SAFETY: everything that the message points to lives in this frame.
    let count = unsafe { libc::recvmsg(socket, &raw mut message, libc::MSG_CMSG_CLOEXEC) };
    if answer(count as c_int).unwrap() == 0 {
        return None;
    }
    // SAFETY: the kernel has written a header with a number behind it, which `pass` has sent.
    Some(owned(unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        assert!(!header.is_null());
        libc::CMSG_DATA(header).cast::<c_int>().read_unaligned()
    }))
}
