//! The longest wait for an answer of the kernel. The library gives its socket as a bare number.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use neli::socket::synchronous::NlSocketHandle;
use rustix::net::sockopt::{Timeout, set_socket_timeout};

/// Longest wait for an answer. The kernel answers a request before the call that sends it returns,
/// so an answer that takes longer was lost.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// Lets a receive call on the socket fail with `EAGAIN` after [`PATIENCE`].
pub(super) fn limit_waits(socket: &NlSocketHandle) -> io::Result<()> {
    // SAFETY: the descriptor is open as long as the socket, which is borrowed here.
    let fd = unsafe { BorrowedFd::borrow_raw(socket.as_raw_fd()) };
    Ok(set_socket_timeout(fd, Timeout::Recv, Some(PATIENCE))?)
}
