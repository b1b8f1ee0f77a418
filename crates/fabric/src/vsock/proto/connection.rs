//! A connection: two ends, and a flow of bytes from each to the other.

use std::time::Instant;

use taut_api::vmci::Cid;
use taut_virtq::socket_header::{CREDIT_REQUEST, RW, SHUTDOWN_SEND, SocketHeader};

use super::credit::Credit;
use super::exchanges::Exchanges;
use super::flow::Flow;
use super::ids::{BySide, ChannelIdx, ConnId, GuestIdx, Side};
use super::promise::ahead;
use super::socket_type::SocketType;

/// Most bytes that a side may have sent without being told which of them were taken: half of the
/// buffer that Linux gives a socket by default.
const MAX_UNTOLD: u32 = 128 << 10;

/// Address of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Address {
    pub(crate) cid: Cid,
    pub(crate) port: u32,
}

/// The machine at an end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Party {
    Guest(GuestIdx),
    /// A program on the host.
    Host,
    /// The fabric itself: the service that attaches ends of connections to channels.
    Fabric,
}

/// One end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) address: Address,
    pub(crate) party: Party,
}

/// Progress of a connection. A connection moves down this list, never up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Requested and not answered. Only the responder may send, and only its answer.
    Requested,
    /// Both sides may send.
    Open,
    /// Over. At least one side is still to be sent a reset.
    Over,
}

/// A connection between two guests, or between a guest and the host.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) ends: BySide<End>,
    pub(crate) socket_type: SocketType,
    pub(crate) state: State,
    /// Time of the request, or of the takeover from the fabric before.
    pub(crate) since: Instant,
    /// Number of the connection in the table.
    pub(crate) id: ConnId,
    /// Tells this connection from others that had, or will have, the same number.
    pub(crate) serial: u32,
    /// The channels that the sides are attached to, each in the region of its guest. The side's
    /// payload goes through the rings of the channel instead of packets.
    pub(crate) channels: BySide<Option<ChannelIdx>>,
    /// The sides whose programs have left their channels, by the end of the control connection. The
    /// side gets packets again. Its channel is in use until what was left in its rings is handed
    /// over.
    pub(crate) has_left: BySide<bool>,
    /// `flows[side]` is what that side sends.
    pub(crate) flows: BySide<Flow>,
    /// The turns that the sides have taken with payload that rings have moved.
    pub(crate) exchanges: Exchanges,
}

/// The next thing that a flow has for its receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// A packet without payload.
    Control(SocketHeader),
    /// Payload that waits, behind this header.
    Payload(SocketHeader),
    /// Bytes of a program on the host, behind this header.
    HostBytes(SocketHeader),
    /// There is nothing to send now.
    Nothing,
}

impl Connection {
    pub(crate) fn new(ends: BySide<End>, socket_type: SocketType, since: Instant) -> Self {
        Self {
            ends,
            socket_type,
            state: State::Requested,
            since,
            id: ConnId(0),
            serial: 0,
            channels: BySide::default(),
            has_left: BySide::default(),
            flows: BySide::default(),
            exchanges: Exchanges::default(),
        }
    }

    /// Tells whether a flow may have payload in a ring of its sender.
    #[inline]
    pub(crate) fn is_from_ring(&self, from: Side) -> bool {
        self.channels[from].is_some()
    }

    /// Tells whether a flow's payload goes into a ring of its receiver.
    #[inline]
    pub(crate) fn is_to_ring(&self, from: Side) -> bool {
        self.is_by_rings(from.other())
    }

    /// Tells whether a side is attached to a channel and has not left it.
    #[inline]
    pub(crate) fn is_by_rings(&self, side: Side) -> bool {
        self.channels[side].is_some() && !self.has_left[side]
    }

    /// Bits of a side's shutdown that the other side's guest is not told yet. A guest that knows
    /// that no bytes follow takes none by packets any more. So it is told once its program has read
    /// its ring to the end: until then, the program may leave the ring and get the rest by packets.
    #[inline]
    pub(crate) fn withheld(&self, from: Side) -> u32 {
        let may_return = self.is_to_ring(from)
            && self.state == State::Open
            && !self.flows[from].is_read
            && !self.flows[from.other()].receive_shut;
        if may_return { SHUTDOWN_SEND } else { 0 }
    }

    /// Tells whether the end of a flow is withheld: see [`Self::withheld`].
    #[inline]
    pub(crate) fn withholds_end(&self, from: Side) -> bool {
        self.flows[from].pending.shutdown & self.withheld(from) != 0
    }

    /// Ends what a side has to do with a channel. Whatever is left in its rings is lost.
    pub(crate) fn detach(&mut self, side: Side) {
        self.channels[side] = None;
        self.has_left[side] = false;
        self.flows[side].unframed = 0;
        self.flows[side].before_ring = None;
        self.flows[side.other()].returned = 0;
    }

    /// The credit of a side, as far as the other side is told of it.
    #[inline]
    pub(crate) fn credit_of(&self, side: Side) -> Credit {
        let flow = &self.flows[side.other()];
        match self.ends[side].party {
            Party::Guest(_) => flow.credit_for_sender(),
            Party::Host | Party::Fabric => flow.window.credit,
        }
    }

    /// Header of a packet from one side to the other, without payload and operation. It carries the
    /// newest credit of its sender.
    #[inline]
    pub(crate) fn header(&self, from: Side) -> SocketHeader {
        let (source, destination) = (self.ends[from].address, self.ends[from.other()].address);
        let Credit { buf_alloc, fwd_cnt } = self.credit_of(from);
        SocketHeader {
            src_cid: source.cid.0.into(),
            dst_cid: destination.cid.0.into(),
            src_port: source.port,
            dst_port: destination.port,
            len: 0,
            kind: self.socket_type.to_wire(),
            op: RW,
            flags: 0,
            buf_alloc,
            fwd_cnt,
        }
    }

    /// Returns what a flow has for its receiver now, in the order in which things are sent: the
    /// request or the response, payload, credit, shutdown, reset. Payload for a ring of the
    /// receiver is no packet, but the packets behind it wait until it is there, and the end of the
    /// flow until it is read.
    #[inline]
    pub(crate) fn next(&self, from: Side) -> Next {
        let flow = &self.flows[from];
        if flow.over {
            Next::Nothing
        } else if let Some(op) = flow.pending.before_payload() {
            Next::Control(SocketHeader { op, ..self.header(from) })
        } else if flow.has_payload() && self.is_to_ring(from) {
            self.next_without_credit(from)
        } else if flow.has_payload() {
            Next::Payload(self.header(from))
        } else if self.ends[from].party == Party::Host && flow.pending.is_empty() && !self.is_to_ring(from) {
            Next::HostBytes(self.header(from))
        } else {
            self.next_after_payload(from)
        }
    }

    /// Returns what a flow has for its receiver when no payload is left.
    #[inline]
    pub(crate) fn next_after_payload(&self, from: Side) -> Next {
        match self.flows[from].pending.after_payload(self.withheld(from)) {
            Some((op, flags)) => Next::Control(SocketHeader { op, flags, ..self.header(from) }),
            None => Next::Nothing,
        }
    }

    /// Returns what a flow has for its receiver when payload waits that the receiver has no credit
    /// for.
    #[inline]
    pub(crate) fn next_without_credit(&self, from: Side) -> Next {
        match self.flows[from].pending.about_credit() {
            Some(op) => Next::Control(SocketHeader { op, ..self.header(from) }),
            None => Next::Nothing,
        }
    }

    /// Header by which the receiver of a flow is asked for its credit.
    #[inline]
    pub(crate) fn credit_request(header: SocketHeader) -> SocketHeader {
        SocketHeader { op: CREDIT_REQUEST, ..header }
    }

    /// The side at which a guest is. No guest is at both.
    pub(crate) fn side_of(&self, guest: GuestIdx) -> Side {
        if self.ends[Side::Requester].party == Party::Guest(guest) {
            Side::Requester
        } else {
            Side::Responder
        }
    }

    /// Bytes that the sender of a flow was promised and that the receiver has not been handed.
    /// There are none unless both ends are guests.
    pub(crate) fn outstanding(&self, from: Side) -> u32 {
        let flow = &self.flows[from];
        if self.is_between_guests() { flow.promise.outstanding(&flow.window) } else { 0 }
    }

    /// Bytes of a flow that were copied out of its sender's ring and wait for a program on the
    /// host.
    pub(crate) fn copied_for_host(&self, from: Side) -> usize {
        if self.ends[from.other()].party == Party::Host { self.flows[from].copied() } else { 0 }
    }

    /// Tells whether both ends are guests.
    pub(crate) fn is_between_guests(&self) -> bool {
        self.ends.iter().all(|end| matches!(end.party, Party::Guest(_)))
    }

    /// Tells whether the connection has to do with queue pairs: an end is attached to a channel, or
    /// is the service that attaches ends.
    #[inline]
    pub(crate) fn has_pairs(&self) -> bool {
        self.channels.iter().any(Option::is_some) || self.fabric_side().is_some()
    }

    /// The fabric's side, if the connection is one with the fabric itself.
    pub(crate) fn fabric_side(&self) -> Option<Side> {
        Side::BOTH.into_iter().find(|&side| self.ends[side].party == Party::Fabric)
    }

    /// The host's side, if the connection is one with the host.
    pub(crate) fn host_side(&self) -> Option<Side> {
        Side::BOTH.into_iter().find(|&side| self.ends[side].party == Party::Host)
    }

    /// The guests at the ends.
    pub(crate) fn guests(&self) -> impl Iterator<Item = GuestIdx> + use<> {
        self.ends.0.into_iter().filter_map(|end| match end.party {
            Party::Guest(guest) => Some(guest),
            Party::Host | Party::Fabric => None,
        })
    }

    /// The guest to whose limit the connection counts: the one that requested it, so that nobody
    /// uses up the limit of another guest. A connection that a program on the host requested counts
    /// to the guest at the other end.
    pub(crate) fn owner(&self) -> Option<GuestIdx> {
        self.guests().next()
    }

    /// Tells whether both sides know of the end: the connection can be forgotten.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.state == State::Over && self.flows.iter().all(|flow| flow.over)
    }

    /// Tells whether the other side must know at once of the credit that `of` gives. It must if it
    /// may send more, and by what it knows may send less than half as much as it could; or if it
    /// knows of too few of the bytes that `of` has taken, since Linux keeps account of these by
    /// itself.
    #[inline]
    pub(crate) fn must_advertise(&self, of: Side) -> bool {
        let (told, flow) = (self.flows[of].advertised.credit, &self.flows[of.other()]);
        let accepted = flow.window.sent.wrapping_add(flow.skew).wrapping_add(flow.waiting() as u32);
        let edge_told = told.fwd_cnt.wrapping_add(told.buf_alloc);
        let known = ahead(edge_told, accepted);
        let may_send_more = ahead(flow.promise.edge.wrapping_add(flow.skew), edge_told) > 0;
        let news_of_taken = flow.credit_for_sender().fwd_cnt != told.fwd_cnt;
        may_send_more && known < flow.promise.limit(&flow.window) / 2
            || news_of_taken && ahead(accepted, told.fwd_cnt) >= MAX_UNTOLD
    }
}
