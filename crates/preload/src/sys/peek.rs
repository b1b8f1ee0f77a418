//! Counting the bytes that a socket has for its program.

use std::ffi::c_int;
use std::mem::{MaybeUninit, zeroed};
use std::os::fd::RawFd;

use libc::{iovec, msghdr};
use rustix::io::Errno;

use super::checked;

/// Length of the memory that the kernel writes the bytes into.
const PART: usize = 4096;
/// Most parts of a message.
const PARTS: usize = 256;
/// Most bytes that are counted: four times the buffer of a VMCI socket whose program asks for none.
pub(crate) const MOST_COUNTED: usize = PART * PARTS;

/// Counts the bytes of a stream that can be read without waiting, `most` at most, and leaves them
/// there. The memory for the bytes is the same for each part of the message, since only their
/// number is wanted.
pub(crate) fn count_unread(fd: RawFd, most: usize) -> Result<usize, Errno> {
    const FLAGS: c_int = libc::MSG_PEEK | libc::MSG_DONTWAIT;
    let mut bytes = [MaybeUninit::<u8>::uninit(); PART];
    let mut parts = [iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: PART }; PARTS];
    let most = most.min(MOST_COUNTED);
    let used = most.div_ceil(PART);
    if let Some(last) = used.checked_sub(1) {
        parts[last].iov_len = most - last * PART;
    }
    // SAFETY: zeros are a message without address, parts and control data.
    let mut message: msghdr = unsafe { zeroed() };
    message.msg_iov = parts.as_mut_ptr();
    message.msg_iovlen = used;
    // SAFETY: the message, its parts and the memory that they name are this frame's, and nobody
    // reads that memory.
    let received = unsafe { libc::syscall(libc::SYS_recvmsg, fd, &raw mut message, FLAGS) };
    checked(received).map(|count| usize::try_from(count).unwrap_or(0))
}
