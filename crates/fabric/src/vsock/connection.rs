//! A connection: two ends, and a flow of bytes from each to the other. It knows neither rings nor sockets.
//!
//! What has no payload is not queued but remembered ([`Owed`]): a connection owes the other side at most one of each kind,
//! however often it was sent. So nothing that a guest does without payload takes memory, and nothing of it stays in a
//! ring.

use std::time::Instant;

use taut_api::vmci::Cid;
use taut_virtq::socket_header::{RW, SocketHeader};

use super::packets::{Packets, Places};

/// One of a connection's ends: 0 asked for it, 1 was asked.
pub(super) type Side = usize;

/// The flow from one side of a connection to the other: what has its turn at a receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) connection: u32,
    pub(super) from: Side,
}

/// Who is at an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Party {
    /// The guest of this place.
    Guest(usize),
    /// A program of the host's.
    Host,
}

/// One end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct End {
    pub(super) cid: Cid,
    pub(super) port: u32,
    pub(super) party: Party,
}

/// How far a connection has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Asked for, not answered.
    Requested,
    /// Both sides may send.
    Open,
    /// A side has been, or is to be, told that it is over.
    Over,
}

/// What a flow's receiver is to be told besides payload.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Owed {
    pub(super) request: bool,
    pub(super) response: bool,
    /// The sender's credit has changed.
    pub(super) update: bool,
    /// The sender asks for the receiver's credit.
    pub(super) ask: bool,
    /// What the sender will no longer do: bits of the shutdown operation. Told after all payload.
    pub(super) shutdown: u32,
    /// Told last.
    pub(super) reset: bool,
}

impl Owed {
    pub(super) fn is_nothing(self) -> bool {
        self == Self::default()
    }
}

/// What a receiver has told of its buffer (virtio 1.2, 5.10.6.3).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Credit {
    /// Its size in bytes.
    pub(super) alloc: u32,
    /// Bytes taken out of it so far, modulo 2³².
    pub(super) taken: u32,
}

/// Bytes from one side to the other.
#[derive(Debug, Default)]
pub(super) struct Flow {
    /// What the receiver is to be told.
    pub(super) owed: Owed,
    /// The sender's packets, in its ring.
    pub(super) packets: Packets,
    /// Bytes of the first one that the receiver has.
    pub(super) offset: u32,
    /// Payload bytes handed to the receiver so far, modulo 2³².
    pub(super) sent: u32,
    /// The receiver's room.
    pub(super) credit: Credit,
    /// Packets that the receiver has been given and, by what it told, not read.
    pub(super) unread: u32,
    /// Since when small packets wait for more of them.
    pub(super) held_since: Option<Instant>,
    /// What the receiver has been told of the sender's buffer.
    pub(super) told: Credit,
    /// The sender's credit has changed, and the receiver need not know at once.
    pub(super) update_later: bool,
    /// The sender has asked for the receiver's credit, and not been told.
    pub(super) asked: bool,
    /// The sender has said that it sends no more.
    pub(super) ended: bool,
    /// It is in a receiver's list, or waits for a time.
    pub(super) queued: bool,
    /// Its receiver has been told of the reset, or cannot be told.
    pub(super) over: bool,
}

impl Flow {
    /// Payload bytes that the receiver has room for. One that tells nonsense has none.
    pub(super) fn room(&self) -> u32 {
        self.credit.alloc.saturating_sub(self.sent.wrapping_sub(self.credit.taken))
    }

    /// The receiver tells of its room.
    pub(super) fn tell_credit(&mut self, credit: Credit) {
        let before = self.sent.wrapping_sub(self.credit.taken);
        let after = self.sent.wrapping_sub(credit.taken);
        if after == 0 {
            self.unread = 0;
        } else if after < before {
            self.unread = (u64::from(self.unread) * u64::from(after) / u64::from(before)) as u32;
        }
        self.credit = credit;
    }

    /// Payload bytes of the first packet that waits.
    pub(super) fn first_len(&self, places: &Places) -> u32 {
        self.packets.first().map_or(0, |head| places.get(head).len)
    }

    /// So many payload bytes have been handed over, in one packet.
    pub(super) fn handed_over(&mut self, bytes: u32) {
        self.sent = self.sent.wrapping_add(bytes);
        self.unread = self.unread.saturating_add(1);
    }
}

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) ends: [End; 2],
    /// `SOCK_STREAM` or `SOCK_SEQPACKET`, as in packets.
    pub(super) kind: u16,
    pub(super) state: State,
    /// When it was asked for, as far as this process knows.
    pub(super) since: Instant,
    /// `flows[side]` is what that side sends.
    pub(super) flows: [Flow; 2],
}

impl Connection {
    pub(super) fn new(ends: [End; 2], kind: u16, since: Instant) -> Self {
        Self { ends, kind, state: State::Requested, since, flows: [Flow::default(), Flow::default()] }
    }

    /// A packet from one side to the other, without payload and operation. It carries the newest that its sender has told of
    /// its room.
    pub(super) fn header(&self, from: Side) -> SocketHeader {
        let (source, destination) = (self.ends[from], self.ends[1 - from]);
        let Credit { alloc, taken } = self.flows[1 - from].credit;
        SocketHeader {
            src_cid: source.cid.0.into(),
            dst_cid: destination.cid.0.into(),
            src_port: source.port,
            dst_port: destination.port,
            len: 0,
            kind: self.kind,
            op: RW,
            flags: 0,
            buf_alloc: alloc,
            fwd_cnt: taken,
        }
    }

    /// The side at which this guest is. No guest is at both.
    pub(super) fn side_of(&self, guest: usize) -> Side {
        usize::from(self.ends[0].party != Party::Guest(guest))
    }

    /// The host's side, if it has one.
    pub(super) fn host_side(&self) -> Option<Side> {
        self.ends.iter().position(|end| end.party == Party::Host)
    }

    /// The guests at its ends.
    pub(super) fn guests(&self) -> impl Iterator<Item = usize> {
        self.ends.into_iter().filter_map(|end| match end.party {
            Party::Guest(guest) => Some(guest),
            Party::Host => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_what_is_left_and_nonsense_is_none() {
        let mut flow = Flow::default();
        flow.tell_credit(Credit { alloc: 100, taken: u32::MAX - 9 });
        flow.sent = u32::MAX - 9;
        assert_eq!(flow.room(), 100);
        flow.handed_over(30);
        assert_eq!((flow.room(), flow.sent), (70, 20));
        flow.tell_credit(Credit { alloc: 100, taken: 5 });
        assert_eq!(flow.room(), 85);
        // More taken than was sent.
        flow.tell_credit(Credit { alloc: 100, taken: 21 });
        assert_eq!(flow.room(), 0);
        // A buffer that shrank below what is in it.
        flow.tell_credit(Credit { alloc: 10, taken: 0 });
        assert_eq!(flow.room(), 0);
    }

    #[test]
    fn what_is_unread_goes_down_with_what_is_taken() {
        let mut flow = Flow { credit: Credit { alloc: 1000, taken: 0 }, ..Flow::default() };
        (0..10).for_each(|_| flow.handed_over(10));
        flow.tell_credit(Credit { alloc: 1000, taken: 50 });
        assert_eq!(flow.unread, 5);
        flow.tell_credit(Credit { alloc: 1000, taken: 100 });
        assert_eq!(flow.unread, 0);
    }
}
