//! How much a flow may hand over now: limits by buffer and credit, and the wait of small packets
//! that are to be merged.
//!
//! Linux counts the packets that a socket holds, and ends a connection that has some hundreds of
//! them (since 6.12.92). A receiver with many unread packets is therefore no longer given small
//! ones one by one: they wait for more of them, but not for long.

use std::time::{Duration, Instant};

use crate::vsock::proto::{Flow, PacketSlots, SocketType};

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
    /// Decides how much `flow`, which has payload, may hand over if a turn and the
    /// receiver's buffer allow `most` bytes.
    #[inline]
    pub(crate) fn of(
        flow: &mut Flow,
        socket_type: SocketType,
        slots: &PacketSlots,
        most: u32,
        now: Instant,
    ) -> Self {
        let most = most.min(flow.window.room());
        // A record without payload needs no credit.
        if most == 0 && flow.next_len(slots) != 0 {
            return Self::NoCredit;
        }
        let waiting = if flow.packets.is_empty() { flow.loose.into() } else { flow.packets.bytes };
        let is_small = flow.spill.is_none() && waiting < LARGE.min(most.into());
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
