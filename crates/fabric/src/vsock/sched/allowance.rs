//! How much a flow may hand over now: limits by buffer and credit, and the wait of small packets
//! that are to be merged.
//!
//! Linux counts the packets that a socket holds, and ends a connection that has some hundreds of
//! them (since 6.12.92). A receiver with many unread packets is therefore no longer given small
//! ones one by one: a flow with less than 1 KiB waits for more, for 1 ms each time. At its turn it
//! does not wait if it has 32 packets. Records cannot be merged, so a short one waits until the
//! receiver has read some; Linux tells that after each record.
//!
//! Records that wait fill their sender's ring, and the sender's own credit, which its peer may wait
//! for, is behind them. So they wait only while they may be copied out of the ring
//! (`engine::spill`).

use std::time::{Duration, Instant};

use crate::vsock::proto::{Flow, PacketSlots, Pledged, SocketType, Source};

/// A receiver with this many unread packets is no longer given small ones one by one.
const MANY_UNREAD: u32 = 128;
/// With payload of this size a receiver's buffer is full before its packets are too many.
pub(crate) const LARGE: u64 = 1024;
/// Linux adds payload of up to this size to the packet before, if that has room.
const TINY: u32 = 128;
/// Wait of small packets for more, however many come meanwhile. The receiver is asked for its
/// credit when the wait begins.
const HOLD: Duration = Duration::from_millis(1);
/// A flow that has this many packets at its turn does not wait: its sender has one ring for all of
/// its connections.
const MAX_HELD: u16 = 32;

/// A packet of a record counts as small below this size.
const SMALL_RECORD: u32 = 2048;
/// The number of unread packets at which short records wait is one for each of these bytes of the
/// receiver's buffer, and at most [`MANY_UNREAD`]. Linux allows one for each 576 bytes. The count
/// starts anew with another fabric, so it can be too low by as much.
const BYTES_A_RECORD: u32 = 2048;

/// How much a flow may hand over now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Allowance {
    /// At most this many payload bytes.
    Bytes(u32),
    /// No bytes until the receiver gives credit: it has given none, or has not read enough records.
    NoCredit,
    /// No bytes before this time: small packets wait for more of them.
    Hold(Instant),
}

impl Allowance {
    /// Decides how much `flow`, which has payload, may hand over if a turn and the
    /// receiver's buffer allow `most` bytes. `pledged` is what was promised for the receiver.
    #[inline]
    pub(crate) fn of(
        flow: &mut Flow,
        socket_type: SocketType,
        slots: &PacketSlots,
        pledged: Pledged,
        most: u32,
        now: Instant,
    ) -> Self {
        let most = most.min(flow.window.room());
        // A record without payload needs no credit.
        if most == 0 && flow.next_len(slots) != 0 {
            return Self::NoCredit;
        }
        let may_wait = socket_type == SocketType::SeqPacket && !pledged.is_too_much();
        if may_wait && waits_for_reader(flow, slots) {
            return Self::NoCredit;
        }
        let (waiting, most) = match flow.source() {
            Some(Source::Returned) => (flow.returned.into(), most),
            Some(Source::Unframed) => (flow.unframed.into(), most),
            _ => {
                let waiting = if flow.spill.is_none() { flow.packets.bytes } else { u64::MAX };
                (waiting, flow.packet_bytes().min(most.into()) as u32)
            }
        };
        match socket_type {
            SocketType::Stream => Self::of_stream(flow, waiting, most, now),
            SocketType::SeqPacket => Self::Bytes(most),
        }
    }

    /// Decides how much a byte stream may hand over of `waiting` bytes, if all else allows `most`.
    #[inline]
    pub(crate) fn of_stream(flow: &mut Flow, waiting: u64, most: u32, now: Instant) -> Self {
        if !Self::gathers(flow) || waiting >= LARGE.min(most.into()) {
            return Self::Bytes(most);
        }
        let since = *flow.held_since.get_or_insert(now);
        if now.duration_since(since) < HOLD && flow.packets.count < MAX_HELD {
            return Self::Hold(now + HOLD);
        }
        Self::Bytes(most.min(TINY))
    }

    /// Tells whether small packets of a byte stream wait for more of them.
    #[inline]
    pub(crate) fn gathers(flow: &Flow) -> bool {
        flow.window.unread >= MANY_UNREAD
    }
}

/// Tells whether the next record of a flow is a short one that waits until the receiver has read
/// some. A record of which the receiver has a part does not: the receiver cannot read that part.
fn waits_for_reader(flow: &Flow, slots: &PacketSlots) -> bool {
    let many = (flow.window.credit.buf_alloc / BYTES_A_RECORD).clamp(1, MANY_UNREAD);
    let len = flow.next_len(slots);
    flow.window.unread >= many && !flow.in_record && flow.offset == 0 && 0 < len && len < SMALL_RECORD
}
