//! One direction of a connection: payload and control packets for its receiver.

use std::time::Instant;

use taut_virtq::socket_header::{CREDIT_REQUEST, REQUEST, RESPONSE, RST, SHUTDOWN, SocketHeader};

use super::credit::{Credit, Window};
use super::one_way::OneWay;
use super::packet_queue::{PacketQueue, PacketSlots};
use super::pending_control::PendingControl;
use super::promise::{Pledged, Promise};
use super::socket_type::SocketType;
use super::spill::Spill;

/// The sender's credit as the receiver of a flow knows it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Advertised {
    /// The credit in the newest packet that the receiver got.
    pub(crate) credit: Credit,
    /// The credit has changed since, and the receiver need not know at once.
    pub(crate) update_deferred: bool,
}

/// The bytes from one side of a connection to the other.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    /// Control packets still to be sent to the receiver.
    pub(crate) pending: PendingControl,
    /// The sender's packets with payload, still in the sender's ring.
    pub(crate) packets: PacketQueue,
    /// Payload of older packets that was copied out of the sender's ring; never empty.
    pub(crate) spill: Option<Box<Spill>>,
    /// Payload since the other side last sent some.
    pub(crate) one_way: OneWay,
    /// Time at which the receiver last got payload.
    pub(crate) moved: Option<Instant>,
    /// Bytes of the first packet in the ring that the receiver has already got.
    pub(crate) offset: u32,
    /// Payload that waits behind the packets and is in none: bytes known to be in the ring of the
    /// sender's channel, or what the fabric itself has to say.
    pub(crate) loose: u32,
    /// Bytes that the sender's kernel has sent more than the receiver's kernel has got, modulo
    /// 2³². Payload that went into a ring counts up, payload that came from a ring counts down. The
    /// window and the promise count what the receiver's kernel gets; the sender's kernel is told of
    /// credit in its own count.
    pub(crate) skew: u32,
    /// Payload was discarded, or may have been: the receiver does not get all of the stream.
    pub(crate) cut: bool,
    /// Bytes delivered, against the credit of the flow's receiver. So `flows[side].window.credit`
    /// is what the *other* side of the connection announced.
    pub(crate) window: Window,
    /// How far the sender may go by what it was, or is to be, told. Without meaning if the host is
    /// at either end: the fabric itself is one of the sides there.
    pub(crate) promise: Promise,
    /// Start of the wait of small packets for more of them.
    pub(crate) held_since: Option<Instant>,
    /// The sender's credit as the receiver knows it.
    pub(crate) advertised: Advertised,
    /// The sender has asked for the receiver's credit and has not been told.
    pub(crate) awaits_credit: bool,
    /// The sender sends no more payload: it has announced so, or the connection is over.
    /// Earlier payload may still wait for the receiver.
    pub(crate) ended: bool,
    /// The flow is in a receiver's queue, or held until a time.
    pub(crate) queued: bool,
    /// The flow is in the queue of those with payload for a ring.
    pub(crate) moves: bool,
    /// A look at the flow's rings is scheduled.
    pub(crate) look_is_due: bool,
    /// Number of looks since a ring of the flow last had bytes or room.
    pub(crate) empty_looks: u8,
    /// The receiver knows of the connection's end, or cannot be told: nothing more is sent to it.
    /// Differs from [`State::Over`](super::State::Over), which says that the connection has ended;
    /// it is forgotten when both of its flows are over too.
    pub(crate) over: bool,
}

impl Flow {
    /// Tells whether payload waits for the receiver.
    #[inline]
    pub(crate) fn has_payload(&self) -> bool {
        self.has_packets() || self.loose > 0
    }

    /// Tells whether payload in packets waits for the receiver.
    #[inline]
    pub(crate) fn has_packets(&self) -> bool {
        !self.packets.is_empty() || self.spill.is_some()
    }

    /// Payload bytes in packets that are known to wait for the receiver. A fabric that has taken
    /// over does not know of packets in the sender's ring until that is started.
    #[inline]
    pub(crate) fn waiting(&self) -> u64 {
        self.packets.bytes.saturating_sub(u64::from(self.offset))
            + self.spill.as_ref().map_or(0, |spill| spill.len() as u64)
    }

    /// Payload bytes of the first packet in the sender's ring.
    pub(crate) fn first_len(&self, slots: &PacketSlots) -> u32 {
        self.packets.first().map_or(0, |packet| slots.get(packet).len)
    }

    /// Payload bytes of the first packet that waits for the receiver, or of all that waits in no
    /// packet.
    #[inline]
    pub(crate) fn next_len(&self, slots: &PacketSlots) -> u32 {
        match &self.spill {
            Some(spill) => spill.first_len(),
            None if self.packets.is_empty() => self.loose,
            None => self.first_len(slots),
        }
    }

    /// Removes all payload that waits. The caller gives the packets in the ring back to their
    /// sender.
    pub(crate) fn take_packets(&mut self) -> PacketQueue {
        self.cut |= self.has_payload();
        self.offset = 0;
        self.loose = 0;
        self.spill = None;
        std::mem::take(&mut self.packets)
    }

    /// Takes up the receiver's new credit. `pledged` is what was promised for the receiver.
    #[inline]
    pub(crate) fn on_credit(&mut self, credit: Credit, socket_type: SocketType, pledged: &mut Pledged) {
        self.window.on_credit(credit);
        self.promise.raise(&self.window, socket_type, pledged);
    }

    /// Counts one packet with this much payload that the receiver got.
    #[inline]
    pub(crate) fn on_payload_delivered(
        &mut self,
        bytes: u32,
        socket_type: SocketType,
        pledged: &mut Pledged,
    ) {
        let before = self.promise.outstanding(&self.window);
        self.window.on_delivered(bytes);
        self.promise.on_delivered(bytes, before, socket_type, pledged);
        self.promise.raise(&self.window, socket_type, pledged);
    }

    /// Counts payload of packets that went into a ring of the receiver, whose kernel never sees it.
    pub(crate) fn on_put_into_ring(&mut self, bytes: u32, socket_type: SocketType, pledged: &mut Pledged) {
        self.skew = self.skew.wrapping_add(bytes);
        self.promise.on_taken(bytes);
        self.promise.raise(&self.window, socket_type, pledged);
    }

    /// Counts payload out of a ring of the sender that the receiver got as a packet. The sender's
    /// kernel never saw it, so what that was promised stays as it is.
    pub(crate) fn on_taken_from_ring(&mut self, bytes: u32) {
        self.window.on_delivered(bytes);
        self.promise.edge = self.promise.edge.wrapping_add(bytes);
        self.skew = self.skew.wrapping_sub(bytes);
    }

    /// The receiver's credit, as the sender's kernel is told of it.
    #[inline]
    pub(crate) fn credit_for_sender(&self) -> Credit {
        let Credit { buf_alloc, fwd_cnt } = self.promise.credit(&self.window);
        Credit { buf_alloc, fwd_cnt: fwd_cnt.wrapping_add(self.skew) }
    }

    /// Notes that the receiver got a packet with this header: every packet carries the sender's
    /// credit.
    #[inline]
    pub(crate) fn on_header_delivered(&mut self, header: &SocketHeader) {
        let credit = Credit { buf_alloc: header.buf_alloc, fwd_cnt: header.fwd_cnt };
        self.advertised = Advertised { credit, update_deferred: false };
        self.pending.credit_update = false;
    }

    /// Notes that the receiver got a control packet.
    #[inline]
    pub(crate) fn on_control_delivered(&mut self, header: &SocketHeader) {
        self.on_header_delivered(header);
        let pending = &mut self.pending;
        match header.op {
            REQUEST => pending.request = false,
            RESPONSE => pending.response = false,
            CREDIT_REQUEST => pending.credit_request = false,
            SHUTDOWN => pending.shutdown = 0,
            RST => {
                pending.reset = false;
                self.over = true;
            }
            _ => {}
        }
    }
}
