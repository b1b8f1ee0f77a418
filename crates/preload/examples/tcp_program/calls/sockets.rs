//! More ways to use a socket.

use std::mem::{ManuallyDrop, size_of};
use std::net::TcpStream;
use std::os::fd::{FromRawFd, RawFd};

use super::answer;

/// Has the close of a socket reset its connection (`SO_LINGER` without time).
pub(crate) fn linger_reset(fd: RawFd) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    let len = size_of::<libc::linger>() as u32;
    // SAFETY: the value is this frame's.
    answer(unsafe {
        libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_LINGER, (&raw const linger).cast(), len)
    })
    .unwrap();
}

/// Tells whether `select(2)` finds the descriptor writable at once.
pub(crate) fn select_writable(fd: RawFd) -> bool {
    // SAFETY: sets of bits, for which zero is empty.
    let mut set: libc::fd_set = unsafe { std::mem::zeroed() };
    let mut time = libc::timeval { tv_sec: 0, tv_usec: 0 };
    // SAFETY: the set is this frame's and the descriptor below its size.
    unsafe { libc::FD_SET(fd, &raw mut set) };
    let none = std::ptr::null_mut();
    // SAFETY: set and time are this frame's.
    answer(unsafe { libc::select(fd + 1, none, &raw mut set, none, &raw mut time) }).unwrap() == 1
}

/// Uses a descriptor as a stream without owning it.
pub(crate) fn stream_of(fd: RawFd) -> ManuallyDrop<TcpStream> {
    // SAFETY: the value is never dropped, so the owner of the number keeps it.
    ManuallyDrop::new(unsafe { TcpStream::from_raw_fd(fd) })
}
