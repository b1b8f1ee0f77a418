//! One connection: its state, and the credit of both directions (virtio 1.2, 5.10.6.3 to 5.10.6.6).

use taut_virtq::socket_header::{self as packet, SocketHeader};

use super::bytes::Bytes;
use super::wire::{Payload, Wire};

const BOTH: u32 = packet::SHUTDOWN_RCV | packet::SHUTDOWN_SEND;

/// The ends of a connection. The own context ID is that of the stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key {
    /// Context ID of the peer.
    pub(super) cid: u64,
    /// Port of the peer.
    pub(super) port: u32,
    /// Own port.
    pub(super) own_port: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The request was sent.
    Connecting,
    Open,
    /// No program uses it any more. The peer has been told, and has not closed yet.
    Closing,
    Closed,
}

/// Packets without payload that are sent as soon as there is room.
#[derive(Debug, Clone, Copy, Default)]
struct Due {
    request: bool,
    response: bool,
    update: bool,
    shutdown: bool,
    reset: bool,
}

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    key: Key,
    own_cid: u64,
    /// Largest payload of a packet.
    most: usize,
    state: State,
    due: Due,
    received: Bytes,
    /// Size of the buffer that the peer is told, if that is not the truth.
    announced: Option<u32>,
    /// Bytes that the program has read, modulo 2³².
    read: u32,
    /// The value of `read` that the peer was last told.
    told: u32,
    /// Bytes sent, modulo 2³².
    sent: u32,
    /// Size of the peer's buffer, and how many of the sent bytes its program has read.
    peer_buffer: u32,
    peer_read: u32,
    /// Directions that the peer has shut down.
    peer_shut: u32,
    /// Directions that this side has shut down.
    shut: u32,
}

impl Connection {
    /// Creates a connection that sends a request to its peer.
    pub(super) fn connect(key: Key, own_cid: u64, most: usize, buffer: usize) -> Self {
        let due = Due { request: true, ..Due::default() };
        Self::new(key, own_cid, most, buffer, State::Connecting, due)
    }

    /// Creates a connection from a peer's request.
    pub(super) fn accept(key: Key, own_cid: u64, most: usize, buffer: usize, request: &SocketHeader) -> Self {
        let due = Due { response: true, ..Due::default() };
        let mut accepted = Self::new(key, own_cid, most, buffer, State::Open, due);
        accepted.learn_credit(request);
        accepted
    }

    fn new(key: Key, own_cid: u64, most: usize, buffer: usize, state: State, due: Due) -> Self {
        let received = Bytes::new(buffer);
        Self {
            key,
            own_cid,
            most,
            state,
            due,
            received,
            announced: None,
            read: 0,
            told: 0,
            sent: 0,
            peer_buffer: 0,
            peer_read: 0,
            peer_shut: 0,
            shut: 0,
        }
    }

    /// Tells the peer of a buffer of this size, whatever there is.
    pub(super) fn announce(&mut self, buffer: u32) {
        self.announced = Some(buffer);
    }

    pub(super) fn key(&self) -> Key {
        self.key
    }

    /// Returns whether the connection is being established, is established, or has bytes left to
    /// read.
    pub(super) fn is_open(&self) -> bool {
        self.state != State::Closed || self.received.len() > 0
    }

    /// Returns whether there is no peer any more.
    pub(super) fn has_ended(&self) -> bool {
        self.state == State::Closed
    }

    /// Returns whether the connection can be forgotten.
    pub(super) fn is_over(&self) -> bool {
        self.state == State::Closed && !self.due.reset
    }

    /// Returns whether the peer accepts bytes, now or when it gives credit.
    pub(super) fn may_send(&self) -> bool {
        let ended = self.shut & packet::SHUTDOWN_SEND != 0 || self.peer_shut & packet::SHUTDOWN_RCV != 0;
        self.state == State::Open && !ended
    }

    /// Returns whether there is something to read, or may be later.
    pub(super) fn may_receive(&self) -> bool {
        let may_come = self.state == State::Open && self.peer_shut & packet::SHUTDOWN_SEND == 0;
        self.received.len() > 0 || may_come
    }

    /// Returns the number of bytes that the peer has room for.
    pub(super) fn credit(&self) -> usize {
        let under_way = self.sent.wrapping_sub(self.peer_read);
        // A peer may shrink its buffer below what is under way.
        self.peer_buffer.saturating_sub(under_way) as usize
    }

    /// Sends as many bytes as credit and room allow. Returns how many.
    pub(super) fn send(&mut self, bytes: &[u8], wire: &mut impl Wire) -> usize {
        self.send_by(bytes.len(), wire, |wire, header, from, len| wire.send(header, &bytes[from..from + len]))
    }

    /// Like [`Self::send`] with `len` bytes without meaning.
    pub(super) fn send_anything(&mut self, len: usize, wire: &mut impl Wire) -> usize {
        self.send_by(len, wire, |wire, header, _, _| wire.send_anything(header))
    }

    fn send_by<W: Wire>(
        &mut self,
        total: usize,
        wire: &mut W,
        mut send: impl FnMut(&mut W, &SocketHeader, usize, usize) -> bool,
    ) -> usize {
        if !self.may_send() || !self.emit(wire) {
            return 0;
        }
        let mut sent = 0;
        while sent < total {
            let len = (total - sent).min(self.credit()).min(self.most);
            if len == 0 || !send(wire, &self.header(packet::RW, 0, len), sent, len) {
                break;
            }
            self.has_told();
            self.sent = self.sent.wrapping_add(len as u32);
            sent += len;
        }
        sent
    }

    /// Stops storing what arrives, because the program will only count it.
    pub(super) fn discard(&mut self) {
        self.received.count_only();
    }

    /// Removes up to `len` bytes that have arrived. Returns how many. The peer is told when a
    /// quarter of the buffer is free that it believes to be full, at the latest.
    pub(super) fn receive(&mut self, len: usize, take: impl FnMut(&[u8])) -> usize {
        let len = self.received.take(len, take);
        self.read = self.read.wrapping_add(len as u32);
        let quarter = (self.buffer() / 4).max(1);
        if self.state == State::Open && self.read.wrapping_sub(self.told) >= quarter {
            self.due.update = true;
        }
        self.end_if_both_have();
        len
    }

    /// Shuts down the sending direction.
    pub(super) fn end(&mut self) {
        self.shut_down(packet::SHUTDOWN_SEND);
    }

    /// Closes the connection for its program. Bytes that were sent still arrive.
    pub(super) fn close(&mut self) {
        match self.state {
            State::Open => {
                self.shut_down(BOTH);
                self.state = State::Closing;
            }
            State::Connecting | State::Closing => self.reset(),
            State::Closed => {}
        }
    }

    /// Resets the connection.
    pub(super) fn reset(&mut self) {
        if self.state != State::Closed {
            // A peer that has not seen the request needs no reset.
            let known = !self.due.request;
            self.break_off();
            self.due.reset = known;
        }
    }

    /// Ends the connection without telling the peer, who knows or cannot be reached.
    pub(super) fn break_off(&mut self) {
        self.state = State::Closed;
        self.due = Due::default();
    }

    fn shut_down(&mut self, flags: u32) {
        if self.state == State::Open && self.shut | flags != self.shut {
            self.shut |= flags;
            self.due.shutdown = true;
        }
    }

    /// Handles a packet from the peer.
    pub(super) fn arrived(&mut self, header: &SocketHeader, payload: &mut Payload<'_>) {
        self.learn_credit(header);
        match (header.op, self.state) {
            (packet::RST, _) => self.break_off(),
            (packet::RESPONSE, State::Connecting) => self.state = State::Open,
            (packet::RW, State::Open) if header.len as usize <= self.received.room() => {
                self.received.put(header.len as usize, payload);
            }
            (packet::SHUTDOWN, State::Open | State::Closing) => {
                self.peer_shut |= header.flags & BOTH;
                self.end_if_both_have();
            }
            (packet::CREDIT_REQUEST, State::Open) => self.due.update = true,
            // Only its credit matters: a connection without a program reads nothing.
            (packet::CREDIT_UPDATE, State::Open)
            | (packet::RW | packet::CREDIT_UPDATE | packet::CREDIT_REQUEST, State::Closing) => {}
            // More bytes than there was credit for, or a packet that is not allowed in this state.
            _ => self.reset(),
        }
    }

    fn learn_credit(&mut self, header: &SocketHeader) {
        (self.peer_buffer, self.peer_read) = (header.buf_alloc, header.fwd_cnt);
    }

    /// Resets the connection when the last bytes were read, if the peer has closed: it waits for
    /// that (5.10.6.5.1).
    fn end_if_both_have(&mut self) {
        let read = self.received.len() == 0 || self.state == State::Closing;
        if self.peer_shut == BOTH && read {
            self.reset();
        }
    }

    /// Returns whether [`Self::emit`] has something to send.
    pub(super) fn has_due(&self) -> bool {
        let Due { request, response, update, shutdown, reset } = self.due;
        request || response || update || shutdown || reset
    }

    /// Sends packets that are due. Returns false if there was no room for all of them.
    pub(super) fn emit(&mut self, wire: &mut impl Wire) -> bool {
        if !self.has_due() {
            return true;
        }
        let mut send = |due: fn(&mut Due) -> &mut bool, op, flags| {
            if !*due(&mut self.due) {
                return true;
            }
            let sent = wire.send(&self.header(op, flags, 0), &[]);
            if sent {
                *due(&mut self.due) = false;
                self.has_told();
            }
            sent
        };
        send(|due| &mut due.request, packet::REQUEST, 0)
            && send(|due| &mut due.response, packet::RESPONSE, 0)
            && send(|due| &mut due.update, packet::CREDIT_UPDATE, 0)
            && send(|due| &mut due.reset, packet::RST, 0)
            && self.emit_shutdown(wire)
    }

    fn emit_shutdown(&mut self, wire: &mut impl Wire) -> bool {
        if self.due.shutdown {
            self.due.shutdown = !wire.send(&self.header(packet::SHUTDOWN, self.shut, 0), &[]);
        }
        !self.due.shutdown
    }

    /// Notes that the peer was told how much was read, which every packet does.
    fn has_told(&mut self) {
        self.told = self.read;
        self.due.update = false;
    }

    fn buffer(&self) -> u32 {
        (self.received.len() + self.received.room()) as u32
    }

    fn header(&self, op: u16, flags: u32, len: usize) -> SocketHeader {
        let Key { cid, port, own_port } = self.key;
        SocketHeader {
            src_cid: self.own_cid,
            dst_cid: cid,
            src_port: own_port,
            dst_port: port,
            len: len as u32,
            kind: packet::STREAM,
            op,
            flags,
            buf_alloc: self.announced.unwrap_or_else(|| self.buffer()),
            fwd_cnt: self.read,
        }
    }
}
