//! Merging of small packets: how much of a flow goes into one packet for its receiver.
//!
//! Linux counts the packets that a socket holds, and ends a connection that has some hundreds of
//! them (since 6.12.92). A receiver with many unread packets is therefore no longer given small
//! ones one by one: they wait for more of them, but not for long.

use std::time::{Duration, Instant};

use taut_virtq::socket_header::{SEQ_EOM, SEQ_EOR};

use crate::vsock::proto::{Flow, PacketSlots, SocketType};

/// Most payload that a flow hands over in one turn, whatever the receiver's buffers are.
pub(crate) const MAX_TURN_BYTES: u32 = 64 << 10;
/// Most packets of a flow that become one.
const MAX_MERGED: usize = 64;

/// A receiver with this many unread packets is no longer given small ones one by one.
const MANY_UNREAD: u32 = 128;
/// With payload of this size a receiver's buffer is full before its packets are too many.
const LARGE: u64 = 1024;
/// Linux adds payload of up to this size to the packet before, if that has room.
const TINY: u32 = 128;
/// Longest wait of small packets for more, and the interval at which the receiver is asked for its
/// credit meanwhile.
const HOLD: Duration = Duration::from_millis(1);
/// This many packets do not wait: their sender has one ring for all of its connections.
const MAX_HELD: u16 = 32;

/// How much a flow may hand over now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Allowance {
    /// At most this many payload bytes.
    Bytes(u32),
    /// No bytes: the receiver has given no credit.
    NoCredit,
    /// No bytes before this time: small packets wait for more of them.
    Hold(Instant),
}

impl Allowance {
    /// Decides how much `flow`, which has waiting packets, may put into a buffer of `buffer` bytes.
    #[inline]
    pub(crate) fn of(
        flow: &mut Flow,
        socket_type: SocketType,
        slots: &PacketSlots,
        buffer: u32,
        now: Instant,
    ) -> Self {
        let most = buffer.min(flow.window.room()).min(MAX_TURN_BYTES);
        // A record without payload needs no credit.
        if most == 0 && flow.first_len(slots) != 0 {
            return Self::NoCredit;
        }
        let is_small = flow.packets.bytes < LARGE.min(most.into());
        if socket_type == SocketType::Stream && flow.window.unread >= MANY_UNREAD && is_small {
            let since = *flow.held_since.get_or_insert(now);
            if now.duration_since(since) < HOLD && flow.packets.count < MAX_HELD {
                return Self::Hold(now + HOLD);
            }
            return Self::Bytes(most.min(TINY));
        }
        Self::Bytes(most)
    }
}

/// A part of a waiting packet.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Part {
    /// Number of the packet.
    pub(crate) packet: u16,
    /// Payload bytes in front of the part.
    pub(crate) offset: u32,
    /// Payload bytes of the part.
    pub(crate) len: u32,
}

/// The parts of waiting packets that become one packet for the receiver. Packets of a byte stream
/// are merged; of other sockets each packet keeps its end.
#[derive(Debug)]
pub(crate) struct Batch {
    parts: [Part; MAX_MERGED],
    count: usize,
    /// Payload bytes of all parts.
    pub(crate) bytes: u32,
    /// Packets that are used up by the batch.
    pub(crate) whole: usize,
    /// Flags of the header: the end of a message or a record.
    pub(crate) flags: u32,
}

impl Batch {
    /// Collects at most `most` bytes of a flow's waiting packets.
    #[inline]
    pub(crate) fn collect(flow: &Flow, socket_type: SocketType, slots: &PacketSlots, most: u32) -> Self {
        let parts = [Part::default(); MAX_MERGED];
        let mut batch = Self { parts, count: 0, bytes: 0, whole: 0, flags: 0 };
        let is_stream = socket_type == SocketType::Stream;
        for (packet, queued) in flow.packets.iter(slots) {
            let offset = if batch.count == 0 { flow.offset } else { 0 };
            let len = (queued.len - offset).min(most - batch.bytes);
            batch.parts[batch.count] = Part { packet, offset, len };
            batch.count += 1;
            batch.bytes += len;
            if offset + len < queued.len {
                break;
            }
            batch.whole += 1;
            if !is_stream {
                batch.flags = queued.flags & (SEQ_EOM | SEQ_EOR);
            }
            if batch.bytes == most || batch.count == MAX_MERGED || !is_stream {
                break;
            }
        }
        batch
    }

    /// The parts that have payload.
    #[inline]
    pub(crate) fn parts(&self) -> impl Iterator<Item = Part> {
        self.parts[..self.count].iter().copied().filter(|part| part.len > 0)
    }

    /// Bytes of the first packet that is left which the batch has used.
    #[inline]
    pub(crate) fn next_offset(&self) -> u32 {
        match self.parts[self.count - 1] {
            Part { offset, len, .. } if self.whole < self.count => offset + len,
            _ => 0,
        }
    }
}
