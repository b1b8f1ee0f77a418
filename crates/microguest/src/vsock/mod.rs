//! VMCI sockets of a microguest (SPEC VC-1): a virtio socket device's driver, and on it stream sockets by context ID and port.
//!
//! `connection` is the state of one connection and its credit, apart from any ring; `stack` has all connections; `card` has the
//! rings. Bytes are copied twice: from the program into a transmit buffer, and from a receive buffer into the connection's, where
//! the program reads them.

mod bytes;
mod card;
mod connection;
#[cfg(test)]
mod link_tests;
mod stack;
#[cfg(test)]
mod tests;
mod wire;

use std::os::fd::BorrowedFd;
use std::time::Instant;

use anyhow::{Context, Result};
use taut_bench::front_end::Link;

pub(super) use stack::ConnectionId;

use crate::options::VsockOptions;
use card::Card;
use stack::Stack;

/// The machine's VMCI device with its sockets. Without a link there are no connections.
#[derive(Debug)]
pub(super) struct Vsock {
    stack: Stack,
    card: Card,
    /// Most payload of a packet that is sent, and bytes of a receive buffer.
    packet: u32,
    buffer: u32,
    /// Programs write and read every byte.
    copy: bool,
}

impl Vsock {
    pub(super) fn new(options: &VsockOptions) -> Self {
        let &VsockOptions { packet, buffer, copy, .. } = options;
        Self { stack: Stack::new(0, packet as usize), card: Card::default(), packet, buffer, copy }
    }

    /// Connects a new link. Its back end knows of no connection.
    pub(super) fn connect(&mut self, link: Link) -> Result<()> {
        let cid = link.config.first_chunk().copied().map(u64::from_le_bytes);
        self.stack.restart(cid.context("the back end says no context ID")?);
        self.card.connect(link, self.packet, self.buffer)
    }

    /// The link has gone, and all connections with it.
    pub(super) fn disconnect(&mut self) {
        self.card.disconnect();
        self.stack.break_all();
    }

    /// The machine's context ID; none before there was a link.
    pub(super) fn cid(&self) -> Option<u64> {
        Some(self.stack.cid()).filter(|cid| *cid != 0)
    }

    /// Begins a connection with a receive buffer of `buffer` bytes.
    pub(super) fn connect_to(&mut self, cid: u32, port: u16, buffer: usize) -> ConnectionId {
        self.stack.connect(cid.into(), port.into(), buffer)
    }

    /// Waits for connections; false if somebody does already.
    pub(super) fn listen(&mut self, port: u16, buffer: usize) -> bool {
        self.stack.listen(port.into(), buffer)
    }

    /// The next connection to a port.
    pub(super) fn accept(&mut self, port: u16) -> Option<ConnectionId> {
        self.stack.accept(port.into())
    }

    /// Waits no more.
    pub(super) fn ignore(&mut self, port: u16) {
        self.stack.ignore(port.into());
    }

    /// A connection that was neither closed nor aborted.
    pub(super) fn socket(&mut self, id: ConnectionId) -> Socket<'_> {
        Socket { vsock: self, id }
    }

    /// Closes a connection; what was sent still arrives.
    pub(super) fn close(&mut self, id: ConnectionId) {
        self.stack.close(id);
    }

    /// Resets a connection.
    pub(super) fn abort(&mut self, id: ConnectionId) {
        self.stack.abort(id);
    }

    /// Receives and answers. True if a socket may have changed.
    pub(super) fn poll(&mut self, now: Instant) -> bool {
        self.stack.poll(&mut self.card, now)
    }

    /// When it wants to be polled though nothing has arrived.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.stack.next_deadline()
    }

    /// See [`crate::nic::device::Device::flush`].
    pub(super) fn flush(&mut self) {
        if !self.card.flush() {
            self.disconnect();
        }
    }

    /// See [`crate::nic::device::Device::arm`].
    pub(super) fn arm(&mut self) -> bool {
        self.card.arm()
    }

    /// See [`crate::nic::device::Device::disarm`].
    pub(super) fn disarm(&mut self) {
        self.card.disarm();
    }

    /// See [`crate::nic::device::Device::interrupts`].
    pub(super) fn interrupts(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.card.interrupts()
    }
}

/// One connection, as a program sees it.
pub(super) struct Socket<'a> {
    vsock: &'a mut Vsock,
    id: ConnectionId,
}

impl Socket<'_> {
    /// Is it being established, does it stand, or is there something left to read?
    pub(super) fn is_open(&mut self) -> bool {
        self.vsock.stack.connection(self.id).is_open()
    }

    /// Will the peer take bytes, now or later?
    pub(super) fn may_send(&mut self) -> bool {
        self.vsock.stack.connection(self.id).may_send()
    }

    /// Is there something to read, or may it come?
    pub(super) fn may_receive(&mut self) -> bool {
        self.vsock.stack.connection(self.id).may_receive()
    }

    /// Would it take bytes now?
    pub(super) fn can_send(&mut self) -> bool {
        let connection = self.vsock.stack.connection(self.id);
        connection.may_send() && connection.credit() > 0 && self.vsock.card.has_room()
    }

    /// Sends what the peer and the ring have room for; returns how much.
    pub(super) fn send(&mut self, bytes: &[u8]) -> usize {
        self.vsock.stack.connection(self.id).send(bytes, &mut self.vsock.card)
    }

    /// Sends up to `len` bytes of which nobody cares what they are: those of `bytes`, over and over, or what lies in the transmit
    /// buffers if this machine's programs do not write.
    pub(super) fn send_any(&mut self, bytes: &[u8], len: usize) -> usize {
        if !self.vsock.copy {
            return self.vsock.stack.connection(self.id).send_anything(len, &mut self.vsock.card);
        }
        let mut sent = 0;
        while sent < len {
            match self.send(&bytes[..bytes.len().min(len - sent)]) {
                0 => break,
                count => sent += count,
            }
        }
        sent
    }

    /// From now on its program only counts what arrives.
    pub(super) fn only_counts(&mut self) {
        if !self.vsock.copy {
            self.vsock.stack.connection(self.id).discard();
        }
    }

    /// Takes up to `len` bytes that have arrived; returns how many.
    pub(super) fn receive(&mut self, len: usize, take: impl FnMut(&[u8])) -> usize {
        let len = self.vsock.stack.connection(self.id).receive(len, take);
        self.vsock.stack.used(self.id);
        len
    }

    /// Nothing is sent any more.
    pub(super) fn end(&mut self) {
        self.vsock.stack.connection(self.id).end();
        self.vsock.stack.used(self.id);
    }
}
