//! Packets that wait for their receiver, in order, without memory per packet.
//!
//! A waiting packet stays in its sender's ring. The queue holds only its number there, as a linked
//! list through one slot per number, so queueing never allocates.

use super::ids::{ConnId, FlowId, Side};

/// Marks the end of a list: no packet has this number.
const NONE: u16 = u16::MAX;

/// A packet with payload that its sender has not got back yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueuedPacket {
    /// Payload bytes.
    pub(crate) len: u32,
    /// Flags of the packet's header.
    pub(crate) flags: u32,
    /// The flow that the packet belongs to.
    flow: FlowId,
    /// Number of the packet behind this one in the same queue.
    next: u16,
}

/// The slots of all packets that one sender can have waiting, by packet number.
#[derive(Debug, Default)]
pub(crate) struct PacketSlots(Vec<QueuedPacket>);

impl PacketSlots {
    /// Provides slots for the packet numbers below `size`. Existing slots keep their contents.
    pub(crate) fn provide(&mut self, size: u16) {
        let size = usize::from(size);
        if self.0.len() < size {
            let flow = FlowId { connection: ConnId(0), from: Side::Requester };
            self.0.resize(size, QueuedPacket { len: 0, flags: 0, flow, next: NONE });
        }
    }

    /// Number of slots.
    pub(crate) fn len(&self) -> u32 {
        self.0.len() as u32
    }

    /// The packet with this number.
    pub(crate) fn get(&self, packet: u16) -> QueuedPacket {
        self.0[usize::from(packet)]
    }

    /// The flow that a waiting packet belongs to.
    pub(crate) fn flow_of(&self, packet: u16) -> FlowId {
        self.get(packet).flow
    }
}

/// The waiting packets of one flow, the oldest first.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PacketQueue {
    first: u16,
    last: u16,
    /// Number of packets.
    pub(crate) count: u16,
    /// Payload bytes of all packets.
    pub(crate) bytes: u64,
}

impl Default for PacketQueue {
    fn default() -> Self {
        Self { first: NONE, last: NONE, count: 0, bytes: 0 }
    }
}

impl PacketQueue {
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Number of the oldest packet.
    pub(crate) fn first(&self) -> Option<u16> {
        (self.first != NONE).then_some(self.first)
    }

    /// Appends a packet.
    pub(crate) fn push(&mut self, slots: &mut PacketSlots, flow: FlowId, packet: u16, len: u32, flags: u32) {
        slots.0[usize::from(packet)] = QueuedPacket { len, flags, flow, next: NONE };
        if self.first == NONE {
            self.first = packet;
        } else {
            slots.0[usize::from(self.last)].next = packet;
        }
        self.last = packet;
        self.count += 1;
        self.bytes += u64::from(len);
    }

    /// Removes the oldest packet and returns its number.
    pub(crate) fn pop(&mut self, slots: &PacketSlots) -> Option<u16> {
        let packet = self.first()?;
        let queued = slots.get(packet);
        self.first = queued.next;
        if self.first == NONE {
            self.last = NONE;
        }
        self.count -= 1;
        self.bytes -= u64::from(queued.len);
        Some(packet)
    }

    /// All packets with their numbers, the oldest first.
    pub(crate) fn iter(self, slots: &PacketSlots) -> impl Iterator<Item = (u16, QueuedPacket)> {
        let mut next = self.first;
        std::iter::from_fn(move || {
            let packet = Some(next).filter(|&next| next != NONE)?;
            let queued = slots.get(packet);
            next = queued.next;
            Some((packet, queued))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_queues_over_the_same_slots_keep_their_order() {
        let mut slots = PacketSlots::default();
        slots.provide(8);
        let (mut a, mut b) = (PacketQueue::default(), PacketQueue::default());
        let flow = |from| FlowId { connection: ConnId(1), from };
        let (of_a, of_b) = (flow(Side::Requester), flow(Side::Responder));
        a.push(&mut slots, of_a, 3, 10, 0);
        b.push(&mut slots, of_b, 0, 20, 1);
        a.push(&mut slots, of_a, 7, 30, 2);
        b.push(&mut slots, of_b, 1, 5, 0);
        assert_eq!(a.iter(&slots).map(|(packet, _)| packet).collect::<Vec<_>>(), [3, 7]);
        assert_eq!((a.bytes, a.count, b.bytes), (40, 2, 25));
        assert_eq!((a.pop(&slots), a.pop(&slots), a.pop(&slots)), (Some(3), Some(7), None));
        a.push(&mut slots, of_a, 3, 1, 0);
        assert_eq!((a.first(), b.first(), a.bytes), (Some(3), Some(0), 1));
        assert!(!b.is_empty());
        assert_eq!((slots.flow_of(3), slots.flow_of(0)), (of_a, of_b));
    }
}
