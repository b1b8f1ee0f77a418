//! A stream to or from another carrier.

use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::time::Instant;

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, connect, recv, send, socket_with, sockopt,
};

use super::frame::{Inbox, hello, length};
use super::slots::{Slot, is_ready};
use super::{Address, MAX_DATAGRAM};
use crate::hidden::{hide, unhide};
use crate::sys::at;

/// Most bytes of datagrams that wait for one peer, unless a single one is longer.
const MOST_WAITING: usize = 256 << 10;

/// A stream.
#[derive(Debug)]
pub(super) struct Peer {
    slot: &'static Slot,
    fd: RawFd,
    /// The context ID of the machine, and the port of the datagram socket as soon as that is known.
    pub(super) cid: u32,
    port: Option<u32>,
    /// It is not connected yet.
    pub(super) is_connecting: bool,
    /// It has ended, and what was received before waits for the program.
    pub(super) is_over: bool,
    /// Sending has failed: it takes no more. Datagrams that it has sent are still received.
    pub(super) takes_none: bool,
    /// What was received.
    pub(super) inbox: Inbox,
    outbox: Vec<u8>,
    /// Number of bytes at the front of the outbox that were sent.
    sent: usize,
    /// Number of datagrams in the outbox.
    pub(super) waiting: u64,
    /// Time at which the peer last took bytes, or at which they began to wait.
    pub(super) last_progress: Instant,
    /// Time of the last datagram in either direction.
    pub(super) last_datagram: Instant,
}

impl Peer {
    fn new(
        slot: &'static Slot,
        socket: &OwnedFd,
        cid: u32,
        port: Option<u32>,
        now: Instant,
    ) -> Result<Self, Errno> {
        let fd = hide(socket.as_raw_fd(), true)?;
        slot.add_stream(fd);
        Ok(Self {
            slot,
            fd,
            cid,
            port,
            is_connecting: false,
            is_over: false,
            takes_none: false,
            inbox: Inbox::default(),
            outbox: Vec::new(),
            sent: 0,
            waiting: 0,
            last_progress: now,
            last_datagram: now,
        })
    }

    /// A stream that another carrier has opened.
    pub(super) fn accepted(
        slot: &'static Slot,
        socket: &OwnedFd,
        cid: u32,
        now: Instant,
    ) -> Result<Self, Errno> {
        Self::new(slot, socket, cid, None, now)
    }

    /// Opens a stream to the carrier of an address.
    pub(super) fn dial(slot: &'static Slot, to: Address, now: Instant) -> Result<Self, Errno> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::VSOCK, SocketType::STREAM, flags, None)?;
        let is_connecting = match connect(&socket, &to.stream()?) {
            Ok(()) => false,
            Err(Errno::INPROGRESS) => true,
            Err(error) => return Err(error),
        };
        let mut peer = Self::new(slot, &socket, to.cid, Some(to.port), now)?;
        peer.is_connecting = is_connecting;
        peer.outbox.extend(hello(slot.port().unwrap_or_default()));
        Ok(peer)
    }

    pub(super) fn fd(&self) -> RawFd {
        self.fd
    }

    /// The address of the peer's datagram socket, as soon as it is known.
    pub(super) fn address(&self) -> Option<Address> {
        self.port.map(|port| Address { cid: self.cid, port })
    }

    /// Tells whether bytes wait for the peer.
    pub(super) fn has_waiting(&self) -> bool {
        self.sent < self.outbox.len()
    }

    /// Tells whether bytes of the stream are to be received. If the program has no room, they are
    /// received only until there is a datagram, so that the peer has its turn when there is room.
    pub(super) fn may_fill(&self, is_full: bool) -> bool {
        !(self.is_connecting || self.is_over || is_full && self.inbox.has_datagram())
    }

    /// The events that are waited for.
    pub(super) fn wanted(&self, is_full: bool) -> PollFlags {
        let mut events = PollFlags::empty();
        events.set(PollFlags::IN, self.may_fill(is_full));
        events.set(PollFlags::OUT, self.is_connecting || self.has_waiting());
        events
    }

    /// Tells whether nothing is on its way in either direction, as far as this machine knows.
    pub(super) fn is_idle(&self) -> bool {
        !self.is_connecting
            && !self.has_waiting()
            && !self.inbox.has_datagram()
            && !is_ready(self.fd, PollFlags::IN)
    }

    /// Adds a datagram. Returns `false` if too many wait already.
    pub(super) fn push(&mut self, datagram: &[u8], now: Instant) -> bool {
        let waits = self.outbox.len() - self.sent;
        if waits > 0 && waits + datagram.len() > MOST_WAITING {
            return false;
        }
        if waits == 0 {
            self.last_progress = now;
        }
        // Not each time, so that a byte moves only a few times.
        if self.sent > self.outbox.len() / 2 {
            self.outbox.drain(..self.sent);
            self.sent = 0;
        }
        self.outbox.extend(length(datagram.len()));
        self.outbox.extend_from_slice(datagram);
        self.waiting += 1;
        self.last_datagram = now;
        true
    }

    /// Takes up the end of connecting, when the socket has an event.
    pub(super) fn connected(&mut self) -> Result<(), Errno> {
        if std::mem::take(&mut self.is_connecting) {
            sockopt::socket_error(at(self.fd)?)??;
        }
        Ok(())
    }

    /// Sends what waits, as far as the peer takes it. An error means that the stream is over.
    pub(super) fn flush(&mut self, now: Instant) -> Result<(), Errno> {
        if self.is_connecting {
            return Ok(());
        }
        while let Some(rest) = self.outbox.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match send(at(self.fd)?, rest, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(count) => {
                    self.sent += count;
                    self.last_progress = now;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN | Errno::INPROGRESS) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        self.outbox.clear();
        (self.sent, self.waiting) = (0, 0);
        Ok(())
    }

    /// Discards what waits, because the peer takes no more. Returns the number of datagrams.
    pub(super) fn give_up(&mut self) -> u64 {
        self.takes_none = true;
        self.outbox.clear();
        self.sent = 0;
        std::mem::take(&mut self.waiting)
    }

    /// Receives bytes into the inbox. An error means that the stream is over.
    pub(super) fn fill(&mut self, room: &mut [u8], now: Instant) -> Result<(), Errno> {
        match recv(at(self.fd)?, &mut *room, RecvFlags::DONTWAIT) {
            Ok((_, 0)) => return Err(Errno::CONNRESET),
            Ok((_, count)) => {
                self.inbox.push(room.get(..count).unwrap_or_default());
                self.last_datagram = now;
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(error) => return Err(error),
        }
        if self.port.is_none() {
            self.port = self.inbox.take_hello()?;
        }
        Ok(())
    }

    /// Space for what one receive takes: the longest datagram at once.
    pub(super) const ROOM: usize = MAX_DATAGRAM + 64;
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.slot.remove_stream(self.fd);
        unhide(self.fd);
    }
}
