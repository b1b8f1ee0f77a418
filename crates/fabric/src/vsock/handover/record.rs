//! Connections in the counters file, by which one fabric tells the next about them.
//!
//! The words of a connection ([`taut_api::fabric::counters::CONNECTIONS`]) say from its first
//! moment on that it exists, and between which addresses. So a fabric that follows a killed one can
//! tell both ends of the loss. Everything else is written when a fabric stops in an orderly way.
//! Connection 0 is never used: its words say how the last fabric ended, and which numbers were
//! used.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use taut_api::fabric::connections::{ABOUT_ALL, BY_RINGS, HIGHEST, SEQPACKET, TO_FABRIC, USED};
use taut_api::fabric::counters::{CONNECTION_WORDS, CONNECTIONS, MAX_CONNECTIONS};
use taut_api::vmci::Cid;
use taut_virtq::counters::SharedWords;

use crate::vsock::proto::{
    Address, BySide, ConnId, Connection, ConnectionTable, Credit, End, Exchanges, Flow, Party,
    PendingControl, Promise, Side, SocketType, State, Window,
};

/// Value of the first word of connection 0 after an orderly stop.
const ORDERLY: u64 = u64::from_le_bytes(*b"orderly\0");
/// Number of connection 0.
const STATE: ConnId = ConnId(ABOUT_ALL as u32);

/// Bits of a connection's first word, apart from those that any process may read.
const OPEN: u64 = 1 << 2;
const OVER: u64 = 1 << 3;
/// [`EDGES_WORD`] is written. Fabrics of older builds told senders all of the credit.
const HAS_EDGES: u64 = 1 << 4;
/// A side is attached to a channel. Fabrics of older builds, which know no channels, are told that
/// the connection is over; [`OPEN`] then says that it is not.
const ATTACHED: BySide<u64> = BySide([1 << 6, 1 << 7]);
/// First of the 16 bits of each flow in a connection's first word.
const FLOW_BITS: BySide<u32> = BySide([16, 32]);
/// First of the two words of each flow.
const FLOW_WORDS: BySide<usize> = BySide([3, 5]);
/// The word with the edges of both flows' promises.
const EDGES_WORD: usize = 7;

/// The connections' part of the counters file.
#[derive(Debug)]
pub(crate) struct ConnectionRecord {
    words: Arc<SharedWords>,
}

/// Connections that the last fabric left.
#[derive(Debug)]
pub(crate) struct Left {
    /// The last fabric has stopped in an orderly way, and has written down everything.
    pub(crate) orderly: bool,
    pub(crate) connections: Vec<Written>,
}

/// The record of one connection.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) id: ConnId,
    pub(crate) ends: BySide<Address>,
    /// The responder is the fabric itself.
    pub(crate) to_fabric: bool,
    /// The sides that are attached to channels.
    pub(crate) attached: BySide<bool>,
    socket_type: SocketType,
    state: State,
    flows: BySide<Flow>,
}

impl ConnectionRecord {
    pub(crate) fn new(words: &Arc<SharedWords>) -> Self {
        Self { words: Arc::clone(words) }
    }

    fn slot(&self, id: ConnId) -> &[AtomicU64] {
        let first = CONNECTIONS + id.0 as usize * CONNECTION_WORDS;
        &self.words.words()[first..first + CONNECTION_WORDS]
    }

    /// Writes down that a connection exists.
    pub(crate) fn add(&self, id: ConnId, connection: &Connection) {
        let slot = self.slot(id);
        for (word, end) in slot[1..].iter().zip(connection.ends.iter()) {
            word.store(halves(end.address.cid.0, end.address.port), Relaxed);
        }
        slot[0].store(summary(connection), Relaxed);
        self.slot(STATE)[HIGHEST].fetch_max(id.0.into(), Relaxed);
    }

    /// Writes down by what the sides of a connection exchange their bytes. Returns the sides for
    /// which that has changed, and whether they use rings now.
    pub(crate) fn note_rings(&self, id: ConnId, connection: &Connection) -> Vec<(Side, bool)> {
        let word = &self.slot(id)[0];
        let before = word.load(Relaxed);
        let now = before & !(BY_RINGS[0] | BY_RINGS[1]) | by_rings(connection);
        word.store(now, Relaxed);
        let sides = Side::BOTH.into_iter().zip(BY_RINGS);
        let changed = sides.filter(|(_, bit)| (before ^ now) & bit != 0);
        changed.map(|(side, bit)| (side, now & bit != 0)).collect()
    }

    /// Writes down that a connection is no more.
    pub(crate) fn remove(&self, id: ConnId) {
        self.slot(id)[0].store(0, Relaxed);
    }

    /// Writes down everything about all connections, so that the next fabric can go on.
    pub(crate) fn write_all(&self, table: &ConnectionTable) {
        for (id, connection) in table.iter() {
            let slot = self.slot(id);
            slot[0].store(summary(connection) | HAS_EDGES, Relaxed);
            let [a, b] = Side::BOTH.map(|side| connection.flows[side].promise.edge);
            slot[EDGES_WORD].store(halves(a, b), Relaxed);
            for side in Side::BOTH {
                let (flow, words) = (&connection.flows[side], &slot[FLOW_WORDS[side]..]);
                let Credit { buf_alloc, fwd_cnt } = flow.window.credit;
                words[0].store(halves(flow.window.sent, flow.offset), Relaxed);
                words[1].store(halves(buf_alloc, fwd_cnt), Relaxed);
            }
        }
        self.slot(STATE)[0].store(ORDERLY, Relaxed);
    }

    /// Takes the connections of the last fabric. From then on this fabric writes, and all numbers
    /// are free.
    pub(crate) fn take(&self) -> Left {
        let orderly = self.slot(STATE)[0].swap(0, Relaxed) == ORDERLY;
        let highest = self.slot(STATE)[HIGHEST].swap(0, Relaxed).min(MAX_CONNECTIONS as u64 - 1);
        let ids = (1..=highest as u32).map(ConnId);
        let connections: Vec<_> = ids.filter_map(|id| self.read(id)).collect();
        for written in &connections {
            self.remove(written.id);
        }
        Left { orderly, connections }
    }

    fn read(&self, id: ConnId) -> Option<Written> {
        let slot = self.slot(id);
        let summary = slot[0].load(Relaxed);
        if summary & USED == 0 {
            return None;
        }
        let load = |at: usize| {
            let word = slot[at].load(Relaxed);
            ((word >> 32) as u32, word as u32)
        };
        let address = |at| {
            let (cid, port) = load(at);
            Address { cid: Cid(cid), port }
        };
        let attached = BySide(ATTACHED.0.map(|bit| summary & bit != 0));
        let is_open = summary & OPEN != 0 && attached.iter().any(|&attached| attached);
        let is_over = summary & OVER != 0 && !is_open;
        let flow = |side| {
            let (sent, offset) = load(FLOW_WORDS[side]);
            let (buf_alloc, fwd_cnt) = load(FLOW_WORDS[side] + 1);
            let flow = flow_from_bits(summary >> FLOW_BITS[side]);
            let window = Window { sent, credit: Credit { buf_alloc, fwd_cnt }, ..Window::default() };
            let over = flow.over && is_over;
            // Whoever does not know of the end is told, whatever the record says: nothing else
            // ends the connection.
            let reset = if is_over { !over } else { flow.pending.reset };
            let pending = PendingControl { reset, ..flow.pending };
            let edge = match side {
                _ if summary & HAS_EDGES == 0 => sent.wrapping_add(window.room()),
                Side::Requester => load(EDGES_WORD).0,
                Side::Responder => load(EDGES_WORD).1,
            };
            Flow { pending, offset, window, promise: Promise::taken_over(edge, sent), over, ..flow }
        };
        Some(Written {
            id,
            ends: BySide([address(1), address(2)]),
            to_fabric: summary & TO_FABRIC != 0,
            attached,
            socket_type: if summary & SEQPACKET == 0 { SocketType::Stream } else { SocketType::SeqPacket },
            state: match summary {
                _ if is_over => State::Over,
                summary if summary & OPEN != 0 => State::Open,
                _ => State::Requested,
            },
            flows: BySide(Side::BOTH.map(flow)),
        })
    }
}

impl Written {
    /// The connection, with these parties at its ends.
    pub(crate) fn into_connection(self, parties: [Party; 2], now: Instant) -> Connection {
        let [a, b] = self.ends.0;
        let mut connection = Connection {
            ends: BySide([End { address: a, party: parties[0] }, End { address: b, party: parties[1] }]),
            socket_type: self.socket_type,
            state: self.state,
            since: now,
            id: self.id,
            serial: 0,
            channels: BySide::default(),
            has_left: BySide::default(),
            flows: self.flows,
            exchanges: Exchanges::default(),
        };
        for side in Side::BOTH {
            // What was not told yet is recorded as a pending update.
            connection.flows[side].advertised.credit = connection.credit_of(side);
        }
        connection
    }
}

fn halves(upper: u32, lower: u32) -> u64 {
    u64::from(upper) << 32 | u64::from(lower)
}

/// The first word of a connection.
fn summary(connection: &Connection) -> u64 {
    let attached = Side::BOTH.into_iter().filter(|&side| connection.channels[side].is_some());
    let attached: u64 = attached.map(|side| ATTACHED[side]).sum();
    let state = match connection.state {
        State::Requested => 0,
        State::Open if attached != 0 => OPEN | OVER,
        State::Open => OPEN,
        State::Over => OVER,
    };
    let to_fabric = if connection.fabric_side().is_some() { TO_FABRIC } else { 0 };
    let socket_type = if connection.socket_type == SocketType::SeqPacket { SEQPACKET } else { 0 };
    let flows = Side::BOTH.map(|side| flow_bits(connection, side) << FLOW_BITS[side]);
    USED | socket_type | state | to_fabric | attached | by_rings(connection) | flows[0] | flows[1]
}

/// The bits of the sides that exchange their bytes by rings.
fn by_rings(connection: &Connection) -> u64 {
    let sides = Side::BOTH.into_iter().zip(BY_RINGS);
    sides.map(|(side, bit)| if connection.is_by_rings(side) { bit } else { 0 }).sum()
}

fn flow_bits(connection: &Connection, from: Side) -> u64 {
    let flow = &connection.flows[from];
    let PendingControl { request, response, credit_update, credit_request, shutdown, reset } = flow.pending;
    let is_news = connection.is_between_guests() && flow.advertised.credit != connection.credit_of(from);
    let credit_update = credit_update || flow.advertised.update_deferred || is_news;
    let flags = [request, response, credit_update, credit_request, reset, flow.ended, flow.over];
    let bits = flags.into_iter().zip(0..).map(|(flag, bit)| u64::from(flag) << bit).sum::<u64>();
    bits | u64::from(shutdown & 3) << 8 | u64::from(flow.spill.is_some()) << 10
}

fn flow_from_bits(bits: u64) -> Flow {
    let bit = |number: u32| bits >> number & 1 != 0;
    Flow {
        pending: PendingControl {
            request: bit(0),
            response: bit(1),
            credit_update: bit(2),
            credit_request: bit(3),
            reset: bit(4),
            shutdown: (bits >> 8 & 3) as u32,
        },
        // Filled from the file of spills, if that comes.
        spill: bit(10).then(Box::default),
        ended: bit(5),
        over: bit(6),
        ..Flow::default()
    }
}
