//! Messages out of guest memory: several of them to a socket by one system call.
#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::Buffer;

/// Most messages of one system call.
const MESSAGES: usize = 64;
/// Most parts of all messages of one system call.
const PARTS: usize = 256;
/// Most pieces of guest memory in a message. A frame of 64 KiB that Linux sends in pages has 18.
pub(crate) const MOST_PIECES: usize = 32;

/// Sends messages to a socket, by as few system calls as possible. Each consists of a head and what
/// a buffer has, of at most [`MOST_PIECES`] pieces.
///
/// `after` gets the number of messages that one call has sent, or the error with which the kernel
/// refused the next message. A refused one is passed over. Nothing more is sent once `after`
/// returns `false`. The call never waits for room; that is `WouldBlock`.
///
/// The messages are borrowed for the whole call, and nothing of them is kept.
///
/// # Panics
/// If a buffer has more pieces.
pub(crate) fn send<'m>(
    socket: BorrowedFd<'_>,
    mut messages: impl Iterator<Item = (&'m [u8], Buffer<'m>)>,
    mut after: impl FnMut(io::Result<usize>) -> bool,
) {
    let mut parts = [const { MaybeUninit::<libc::iovec>::uninit() }; PARTS];
    let parts = parts.as_mut_ptr().cast::<libc::iovec>();
    let mut calls = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; MESSAGES];
    let calls = calls.as_mut_ptr().cast::<libc::mmsghdr>();
    loop {
        let (mut count, mut used) = (0, 0);
        while count < MESSAGES && used + 1 + MOST_PIECES <= PARTS {
            let Some((head, rest)) = messages.next() else { break };
            let first = used;
            let pieces = rest.pieces().map(|piece| (piece.base.as_ptr(), piece.len));
            for (base, len) in std::iter::once((head.as_ptr().cast_mut(), head.len())).chain(pieces) {
                assert!(used < first + 1 + MOST_PIECES, "a message has too many pieces");
                // SAFETY: `used` is below PARTS, by this and the condition of the loop.
                unsafe { parts.add(used).write(libc::iovec { iov_base: base.cast(), iov_len: len }) };
                used += 1;
            }
            // SAFETY: all zeros is a valid `msghdr`: no address, no parts and no control data.
            let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
            header.msg_iov = parts.wrapping_add(first);
            header.msg_iovlen = used - first;
            // SAFETY: `count` is below MESSAGES.
            unsafe { calls.add(count).write(libc::mmsghdr { msg_hdr: header, msg_len: 0 }) };
            count += 1;
        }
        if count == 0 {
            return;
        }
        let mut sent = 0;
        while sent < count {
            const FLAGS: libc::c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
            // SAFETY: entries `sent..count` are initialised. They point to initialised parts, and
            // those to heads and guest memory that are borrowed for 'm, which is longer than this
            // call: a `Buffer` keeps its memory mapped. The kernel only reads the bytes, and writes
            // nothing but each entry's `msg_len`.
            let done =
                unsafe { libc::sendmmsg(socket.as_raw_fd(), calls.add(sent), (count - sent) as u32, FLAGS) };
            let result = usize::try_from(done).map_err(|_| io::Error::last_os_error());
            sent += *result.as_ref().unwrap_or(&1);
            if !after(result) {
                return;
            }
        }
    }
}
