//! The connection to `tautd`. A `tautd` that stops reading or breaks off in the middle of a message is disconnected: the data plane
//! does not wait for it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use taut_api::fabric::{FromFabric, ToFabric, channel};

use crate::sys::epoll::{Epoll, EventFlags, Watched, set_nonblocking};

/// How long a message may take to pass.
const PATIENCE: Duration = Duration::from_secs(1);

/// A connected `tautd`.
#[derive(Debug)]
pub(super) struct Peer {
    socket: Watched<UnixStream>,
    /// It said hello, in our version.
    pub(super) greeted: bool,
}

impl Peer {
    pub(super) fn new(socket: OwnedFd, events: &Epoll, token: u64) -> io::Result<Self> {
        set_nonblocking(&socket)?;
        let socket = UnixStream::from(socket);
        Ok(Self { socket: events.watch(socket, token, EventFlags::IN)?, greeted: false })
    }

    pub(super) fn send(&self, message: &FromFabric, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        channel::send_within(&self.socket, message, fds, PATIENCE)
    }

    /// Is there something to receive? An event may be that of an earlier connection.
    pub(super) fn is_readable(&self) -> bool {
        !matches!(recv(&*self.socket, &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT), Err(Errno::AGAIN))
    }

    /// The message that made the socket readable; `None` when the connection was closed.
    pub(super) fn receive(&self) -> io::Result<Option<(ToFabric, Vec<OwnedFd>)>> {
        channel::receive_within(&self.socket, PATIENCE)
    }
}

impl AsFd for Peer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
