//! The vsock stack of a microguest (spec row VC-1): the driver of a virtio socket device with
//! stream sockets on it.
//!
//! `connection` is the state of one connection with its credit, independent of any ring. `stack`
//! has all connections. `card` has the rings. Bytes are copied twice: from the program into a
//! transmit buffer, and from a receive buffer into the connection's buffer, from which the program
//! reads.

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

/// The machine's vsock device with its sockets. Without a link there are no connections.
#[derive(Debug)]
pub(super) struct Vsock {
    stack: Stack,
    card: Card,
    /// Most payload of a sent packet, and bytes of a receive buffer.
    packet: u32,
    buffer: u32,
    /// Programs write and read every byte.
    copy: bool,
}

impl Vsock {
    pub(super) fn new(options: &VsockOptions) -> Self {
        let &VsockOptions { packet, buffer, copy, silent, .. } = options;
        let stack = Stack::new(0, packet as usize).silent_after(silent);
        Self { stack, card: Card::default(), packet, buffer, copy }
    }

    /// Connects a new link, whose back end knows no connections.
    pub(super) fn connect(&mut self, link: Link) -> Result<()> {
        let cid = link.config.first_chunk().copied().map(u64::from_le_bytes);
        let cid = cid.context("the back end says no context ID")?;
        self.card.connect(link, self.packet, self.buffer)?;
        self.stack.restart(cid);
        Ok(())
    }

    /// Drops the link and all connections.
    pub(super) fn disconnect(&mut self) {
        self.card.disconnect();
        self.stack.break_all();
    }

    /// Returns the machine's context ID; none before the first link.
    pub(super) fn cid(&self) -> Option<u64> {
        Some(self.stack.cid()).filter(|cid| *cid != 0)
    }

    /// Begins a connection with a receive buffer of `buffer` bytes.
    pub(super) fn connect_to(&mut self, cid: u32, port: u16, buffer: usize) -> ConnectionId {
        self.stack.connect(cid.into(), port.into(), buffer)
    }

    /// Waits for connections to a port. Returns false if a server does so already.
    pub(super) fn listen(&mut self, port: u16, buffer: usize) -> bool {
        self.stack.listen(port.into(), buffer)
    }

    /// Returns the next new connection to a port.
    pub(super) fn accept(&mut self, port: u16) -> Option<ConnectionId> {
        self.stack.accept(port.into())
    }

    /// Stops waiting for connections to a port.
    pub(super) fn ignore(&mut self, port: u16) {
        self.stack.ignore(port.into());
    }

    /// Returns a connection that was neither closed nor aborted.
    pub(super) fn socket(&mut self, id: ConnectionId) -> Socket<'_> {
        Socket { vsock: self, id }
    }

    /// Closes a connection. Bytes that were sent still arrive.
    pub(super) fn close(&mut self, id: ConnectionId) {
        self.stack.close(id);
    }

    /// Resets a connection.
    pub(super) fn abort(&mut self, id: ConnectionId) {
        self.stack.abort(id);
    }

    /// Receives and answers. Returns true if a socket may have changed.
    pub(super) fn poll(&mut self, now: Instant) -> bool {
        self.stack.poll(&mut self.card, now)
    }

    /// Returns a number that changes when a connection without credit may have got some, or has
    /// ended.
    pub(super) fn news(&self) -> u64 {
        self.stack.news()
    }

    /// Returns the time of the stack's next timer.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.stack.next_deadline()
    }

    /// Publishes everything sent and taken so far. Returns true if the back end broke the rules:
    /// all connections have ended then.
    pub(super) fn flush(&mut self) -> bool {
        let sound = self.card.flush();
        if !sound {
            self.disconnect();
        }
        !sound
    }

    /// See [`crate::nic::device::Device::arm`].
    pub(super) fn arm(&mut self) -> bool {
        // What arrives at a silent guest is no reason to wake up.
        self.card.arm() && !self.stack.is_silent()
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

/// A connection as its program uses it.
pub(super) struct Socket<'a> {
    vsock: &'a mut Vsock,
    id: ConnectionId,
}

impl Socket<'_> {
    /// Returns whether the connection is being established, is established, or has bytes left to
    /// read.
    pub(super) fn is_open(&mut self) -> bool {
        self.vsock.stack.connection(self.id).is_open()
    }

    /// Returns whether the peer accepts bytes, now or later.
    pub(super) fn may_send(&mut self) -> bool {
        self.vsock.stack.connection(self.id).may_send()
    }

    /// Returns whether there is something to read, or may be later.
    pub(super) fn may_receive(&mut self) -> bool {
        self.vsock.stack.connection(self.id).may_receive()
    }

    /// Returns whether the connection accepts bytes now.
    pub(super) fn can_send(&mut self) -> bool {
        let connection = self.vsock.stack.connection(self.id);
        connection.may_send() && connection.credit() > 0 && self.vsock.card.has_room()
    }

    /// Returns whether nothing can be sent until the peer gives credit.
    pub(super) fn waits_for_credit(&mut self) -> bool {
        let connection = self.vsock.stack.connection(self.id);
        connection.may_send() && connection.credit() == 0
    }

    /// Sends as many bytes as the peer and the ring have room for. Returns how many.
    pub(super) fn send(&mut self, bytes: &[u8]) -> usize {
        self.vsock.stack.connection(self.id).send(bytes, &mut self.vsock.card)
    }

    /// Sends up to `len` bytes without meaning: those of `bytes` repeatedly, or the contents of the
    /// transmit buffers if this machine's programs do not write.
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

    /// From now on the program only counts what arrives.
    pub(super) fn only_counts(&mut self) {
        if !self.vsock.copy {
            self.vsock.stack.connection(self.id).discard();
        }
    }

    /// Removes up to `len` bytes that have arrived. Returns how many.
    pub(super) fn receive(&mut self, len: usize, take: impl FnMut(&[u8])) -> usize {
        let len = self.vsock.stack.connection(self.id).receive(len, take);
        self.vsock.stack.used(self.id);
        len
    }

    /// Shuts down the sending direction.
    pub(super) fn end(&mut self) {
        self.vsock.stack.connection(self.id).end();
        self.vsock.stack.used(self.id);
    }
}
