//! The asking side of the border, for `tautd`.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use super::channel::{Packet, receive, send};
use super::message::{PROTOCOL, Reply, Request, SourceId};

/// Maximum number of sources that a process may name: a VM has two.
const MOST_SOURCES: usize = 16_384;

/// A connection to the console process.
#[derive(Debug)]
pub struct Caller {
    socket: OwnedFd,
    /// An answer may still be on its way, which would be taken for that of the next request.
    out_of_step: bool,
}

impl Caller {
    /// Connects and greets.
    ///
    /// # Errors
    /// When nobody listens at `path`, or the process does not answer within `limit`, or has another
    /// protocol.
    pub fn connect(path: &Path, limit: Duration) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        connect(&socket, &SocketAddrUnix::new(path)?)?;
        let mut caller = Self { socket, out_of_step: false };
        match caller.ask(&Request::Hello { protocol: PROTOCOL }, &[], limit)? {
            Reply::Welcome { protocol: PROTOCOL } => Ok(caller),
            other => Err(io::Error::other(format!("it answered {other:?} to protocol {PROTOCOL}"))),
        }
    }

    /// Returns whether no further request can be made.
    pub fn is_broken(&self) -> bool {
        self.out_of_step
    }

    /// Sends a request and waits for its answer, for `limit` at most.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] with the reason if it is refused. After any other error the
    /// connection is of no use.
    pub fn ask(&mut self, request: &Request, fds: &[BorrowedFd<'_>], limit: Duration) -> io::Result<Reply> {
        if self.out_of_step {
            return Err(io::ErrorKind::NotConnected.into());
        }
        self.out_of_step = true;
        let deadline = Instant::now() + limit;
        until(self.socket.as_fd(), PollFlags::OUT, deadline, || send(&self.socket, request, fds))?;
        let packet = until(self.socket.as_fd(), PollFlags::IN, deadline, || receive(&self.socket))?;
        match packet {
            Packet::Message(Reply::Refused { why }, _) => {
                self.out_of_step = false;
                Err(io::Error::new(io::ErrorKind::InvalidInput, why))
            }
            Packet::Message(reply, _) => {
                self.out_of_step = false;
                Ok(reply)
            }
            Packet::Malformed(why) => Err(io::Error::new(io::ErrorKind::InvalidData, why)),
            Packet::End => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Sends a request whose answer says nothing more than that it is done.
    ///
    /// # Errors
    /// As for [`Self::ask`].
    pub fn tell(&mut self, request: &Request, fds: &[BorrowedFd<'_>], limit: Duration) -> io::Result<()> {
        self.ask(request, fds, limit).map(drop)
    }

    /// Returns the names of all sources, within `limit` for all pages together.
    ///
    /// # Errors
    /// As for [`Self::ask`], and if the process names more sources than there can be.
    pub fn list(&mut self, limit: Duration) -> io::Result<Vec<SourceId>> {
        let mut all: Vec<SourceId> = Vec::new();
        let deadline = Instant::now() + limit;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if all.len() > MOST_SOURCES {
                self.out_of_step = true;
                return Err(io::Error::other(format!("it named more than {MOST_SOURCES} sources")));
            }
            match self.ask(&Request::List { after: all.last().cloned() }, &[], left)? {
                Reply::Sources { ids, more } => {
                    // A page without names would be asked for again and again.
                    let more = more && !ids.is_empty();
                    all.extend(ids);
                    if !more {
                        return Ok(all);
                    }
                }
                other => {
                    self.out_of_step = true;
                    return Err(io::Error::other(format!("it answered {other:?} instead of its sources")));
                }
            }
        }
    }
}

/// Calls `work` until it does not have to wait.
fn until<T>(
    socket: BorrowedFd<'_>,
    flags: PollFlags,
    deadline: Instant,
    work: impl Fn() -> io::Result<T>,
) -> io::Result<T> {
    loop {
        match work() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            other => return other,
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let left = Timespec::try_from(left).ok();
        match poll(&mut [PollFd::from_borrowed_fd(socket, flags)], left.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
