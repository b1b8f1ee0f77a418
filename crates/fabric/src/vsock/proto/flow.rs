//! One direction of a connection: payload and control packets for its receiver.

use std::time::Instant;

use taut_virtq::socket_header::{CREDIT_REQUEST, REQUEST, RESPONSE, RST, SEQ_EOM, SHUTDOWN, SocketHeader};

use super::credit::{Credit, Window};
use super::one_way::OneWay;
use super::packet_queue::{PacketQueue, PacketSlots};
use super::pending_control::PendingControl;
use super::promise::{Pledged, Promise};
use super::signal_pace::SignalPace;
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

/// The place of a flow's next payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// The ring of the receiver, which has left the ring without reading it to the end.
    Returned,
    /// Packets of the sender.
    Packets,
    /// The ring of the sender, or what the fabric itself has to say.
    Unframed,
}

/// The bytes from one side of a connection to the other.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    /// Control packets still to be sent to the receiver.
    pub(crate) pending: PendingControl,
    /// The sender's packets with payload, still in the sender's ring.
    pub(crate) packets: PacketQueue,
    /// The fabric has taken over, and the sender's ring has not started since: whether packets of
    /// the flow wait in that ring is not known. Counts as waiting packets, so that the end of the
    /// flow does not overtake them. Set when the connection is restored; cleared when the ring has
    /// started, or by [`Self::take_packets`].
    pub(crate) packets_unknown: bool,
    /// Payload of older packets that was copied out of the sender's ring; never empty.
    pub(crate) spill: Option<Box<Spill>>,
    /// Payload since the other side last sent some.
    pub(crate) one_way: OneWay,
    /// Time at which the receiver last got payload.
    pub(crate) moved: Option<Instant>,
    /// Bytes of the first packet in the ring that the receiver has already got.
    pub(crate) offset: u32,
    /// Payload that waits behind the packets and is in none: bytes that the last look has found in
    /// the ring of the sender's channel, or what the fabric itself has to say. While there are
    /// some, no other look at the ring is scheduled: the flow's turns look again.
    pub(crate) unframed: u32,
    /// Bytes of packets that go before those of the sender's ring. `None` while all packets do:
    /// until the sender leaves the ring. Packets that it sends afterwards go behind the ring.
    pub(crate) before_ring: Option<u64>,
    /// Bytes at the end of the receiver's ring that it has not read and that go to it by packets,
    /// before all other payload: it has left the ring.
    pub(crate) returned: u32,
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
    /// The receiver has got a part of a record, and cannot read it without the rest.
    pub(crate) in_record: bool,
    /// The sender's credit as the receiver knows it.
    pub(crate) advertised: Advertised,
    /// The sender has asked for the receiver's credit and has not been told.
    pub(crate) awaits_credit: bool,
    /// The sender sends no more payload: it has announced so, or the connection is over.
    /// Earlier payload may still wait for the receiver.
    pub(crate) ended: bool,
    /// The sender has announced that it takes no more payload of the other side.
    pub(crate) receive_shut: bool,
    /// The receiver has read all of the flow out of its ring, and nothing follows. Until then its
    /// guest is not told that the sender sends no more: see [`Connection::next`].
    ///
    /// [`Connection::next`]: super::Connection::next
    pub(crate) is_read: bool,
    /// The flow is in a receiver's queue, or held until a time.
    pub(crate) queued: bool,
    /// The flow is in the queue of those with payload for a ring.
    pub(crate) moves: bool,
    /// A look at the flow's rings is scheduled.
    pub(crate) look_is_due: bool,
    /// Number of looks since a ring of the flow last had bytes or room.
    pub(crate) empty_looks: u8,
    /// The rule that decides whether the receiver's program is signalled after a move into its
    /// ring.
    pub(crate) signals: SignalPace,
    /// The receiver knows of the connection's end, or cannot be told: nothing more is sent to it.
    /// Differs from [`State::Over`](super::State::Over), which says that the connection has ended;
    /// it is forgotten when both of its flows are over too.
    pub(crate) over: bool,
}

impl Flow {
    /// Tells whether payload waits for the receiver.
    #[inline]
    pub(crate) fn has_payload(&self) -> bool {
        self.has_packets() || self.unframed > 0 || self.returned > 0
    }

    /// Returns where the next payload is; `None` if none waits.
    #[inline]
    pub(crate) fn source(&self) -> Option<Source> {
        if self.returned > 0 {
            Some(Source::Returned)
        } else if self.unframed > 0 && (self.before_ring == Some(0) || !self.has_packets()) {
            Some(Source::Unframed)
        } else {
            self.has_packets().then_some(Source::Packets)
        }
    }

    /// Bytes of packets that may be handed over before it is the turn of the sender's ring.
    #[inline]
    pub(crate) fn packet_bytes(&self) -> u64 {
        self.before_ring.filter(|_| self.unframed > 0).unwrap_or(u64::MAX)
    }

    /// Counts bytes of packets that were handed over.
    #[inline]
    pub(crate) fn on_packets_taken(&mut self, bytes: u32) {
        if let Some(before_ring) = &mut self.before_ring {
            *before_ring = before_ring.saturating_sub(bytes.into());
        }
    }

    /// Tells whether payload in packets waits for the receiver, or may do so.
    #[inline]
    pub(crate) fn has_packets(&self) -> bool {
        !self.packets.is_empty() || self.spill.is_some() || self.packets_unknown
    }

    /// Payload bytes that were copied out of the sender's ring and wait for the receiver.
    #[inline]
    pub(crate) fn copied(&self) -> usize {
        self.spill.as_ref().map_or(0, |spill| spill.len())
    }

    /// Payload bytes in packets that are known to wait for the receiver (see
    /// [`Self::packets_unknown`]).
    #[inline]
    pub(crate) fn waiting(&self) -> u64 {
        self.packets.bytes.saturating_sub(u64::from(self.offset)) + self.copied() as u64
    }

    /// Payload bytes of the first packet in the sender's ring.
    pub(crate) fn first_len(&self, slots: &PacketSlots) -> u32 {
        self.packets.first().map_or(0, |packet| slots.get(packet).len)
    }

    /// Payload bytes of the first packet that waits for the receiver, or all bytes of a ring, if it
    /// is the turn of that.
    #[inline]
    pub(crate) fn next_len(&self, slots: &PacketSlots) -> u32 {
        match (self.source(), &self.spill) {
            (Some(Source::Returned), _) => self.returned,
            (Some(Source::Unframed), _) => self.unframed,
            (_, Some(spill)) => spill.first_len(),
            (_, None) => self.first_len(slots),
        }
    }

    /// Removes all payload that waits, or that may wait in a ring that has not started. The caller
    /// gives the packets in the ring back to their sender.
    pub(crate) fn take_packets(&mut self) -> PacketQueue {
        self.cut |= self.has_payload();
        self.packets_unknown = false;
        self.offset = 0;
        self.unframed = 0;
        self.returned = 0;
        self.spill = None;
        std::mem::take(&mut self.packets)
    }

    /// Takes up the receiver's new credit. `pledged` is what was promised for the receiver.
    #[inline]
    pub(crate) fn on_credit(&mut self, credit: Credit, socket_type: SocketType, pledged: &mut Pledged) {
        match socket_type {
            SocketType::Stream => self.window.on_credit(credit),
            SocketType::SeqPacket => self.window.on_credit_for_records(credit),
        }
        self.promise.raise(&self.window, socket_type, pledged);
    }

    /// Counts one packet with this much payload, and these flags in its header, that the receiver
    /// got.
    #[inline]
    pub(crate) fn on_payload_delivered(
        &mut self,
        bytes: u32,
        flags: u32,
        socket_type: SocketType,
        pledged: &mut Pledged,
    ) {
        self.in_record = socket_type == SocketType::SeqPacket && flags & SEQ_EOM == 0;
        let before = self.promise.outstanding(&self.window);
        self.on_packets_taken(bytes);
        self.window.on_delivered(bytes);
        self.promise.on_delivered(bytes, before, socket_type, pledged);
        self.promise.raise(&self.window, socket_type, pledged);
    }

    /// Counts payload of packets that a program's socket on the host has taken.
    pub(crate) fn on_written_to_host(&mut self, bytes: u32) {
        self.on_packets_taken(bytes);
        self.window.on_delivered(bytes);
        self.window.credit.fwd_cnt = self.window.sent;
    }

    /// Counts payload of packets that went into a ring of the receiver, whose kernel never sees it.
    pub(crate) fn on_put_into_ring(&mut self, bytes: u32, socket_type: SocketType, pledged: &mut Pledged) {
        self.on_packets_taken(bytes);
        self.skew = self.skew.wrapping_add(bytes);
        self.promise.on_taken(bytes);
        self.promise.raise(&self.window, socket_type, pledged);
    }

    /// Counts payload out of a ring that the receiver got as a packet. If it was in a ring of the
    /// sender, the sender's kernel never saw it. If it was returned from the ring of the receiver,
    /// it was counted already. In both cases, what the sender's kernel was promised stays as it is.
    pub(crate) fn on_ring_bytes_delivered(&mut self, bytes: u32) {
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
            SHUTDOWN => pending.shutdown &= !header.flags,
            RST => {
                pending.reset = false;
                self.over = true;
            }
            _ => {}
        }
    }
}
