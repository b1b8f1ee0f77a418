//! Relief of rings that are crowded by packets for receivers that take nothing.
//!
//! A guest has one ring for all of its connections. Packets that wait in it for a receiver without
//! buffers, or for a program on the host that does not read, would in the end stop all of them. So
//! when a ring is crowded, packets of flows that made no progress for a while are copied out of the
//! ring. From then on all packets of such a flow are copied, until the receiver has taken what was.
//!
//! The memory for this is bounded: by what was promised for a receiving guest, and for programs on
//! the host by the credit of each connection and by [`MAX_TO_HOST`] for each sending guest.

use std::time::{Duration, Instant};

use super::VsockSwitch;
use crate::vsock::guest::{Guests, Receiver, Sender};
use crate::vsock::proto::{Connection, FlowId, GuestIdx, Party, PerGuest, Side, SocketType};

/// A flow that has handed over nothing for this long makes no progress.
const STUCK: Duration = Duration::from_millis(1);
/// Most bytes that are copied out of one guest's ring for programs on the host.
pub(super) const MAX_TO_HOST: usize = 12 << 20;

impl VsockSwitch {
    /// Copies packets out of a guest's ring that has been crowded for a while.
    pub(super) fn relieve(&mut self, guest: GuestIdx, now: Instant) {
        let Self { table, guests: Guests { senders, receivers, .. }, sched, .. } = self;
        let sender = &mut senders[guest];
        sender.relief_is_due = false;
        let Some(ring) = sender.ring.as_ref().filter(|_| sender.is_crowded()) else { return };
        let mut relieved = false;
        for packet in ring.queue.taken() {
            let FlowId { connection: id, from } = sender.slots.flow_of(packet);
            let Some(connection) = table.get_mut(id) else { continue };
            if connection.flows[from].moved.is_some_and(|moved| now - moved < STUCK) {
                continue;
            }
            match most_copied(connection, from, sender, receivers) {
                Some(most) => relieved |= spill(connection, from, sender, most),
                // Short records do not wait for their reader where they are not copied.
                None => sched.turns.queue(FlowId { connection: id, from }, connection),
            }
        }
        if relieved {
            sched.unpublished.add_sender(guest, sender);
        }
        if sender.is_crowded() {
            sched.deferred.relief(guest, sender, now);
        }
    }
}

/// Returns how many bytes of a flow may be copied out of its sender's ring, including those that
/// were. Returns `None` if so much was promised for the receiver that no record is copied for it.
pub(super) fn most_copied(
    connection: &Connection,
    from: Side,
    sender: &Sender,
    receivers: &PerGuest<Receiver>,
) -> Option<usize> {
    let flow = &connection.flows[from];
    let most = match connection.ends[from.other()].party {
        Party::Guest(receiver) => {
            // Senders of records are promised more than others.
            if connection.socket_type == SocketType::SeqPacket && receivers[receiver].pledged.is_too_much() {
                return None;
            }
            flow.promise.outstanding(&flow.window) as usize
        }
        Party::Host => {
            let of_others = sender.copied_for_host.saturating_sub(flow.copied());
            (flow.window.room() as usize).min(MAX_TO_HOST.saturating_sub(of_others))
        }
        // The fabric takes everything at once.
        Party::Fabric => 0,
    };
    Some(most)
}

/// Copies the packets of a flow out of its sender's ring, until `most` bytes of it are copied.
/// Returns `true` if any packet was given back.
pub(super) fn spill(connection: &mut Connection, from: Side, sender: &mut Sender, most: usize) -> bool {
    let socket_type = connection.socket_type;
    let flow = &mut connection.flows[from];
    let before = flow.copied();
    let mut spill = flow.spill.take().unwrap_or_default();
    let mut any = false;
    let mut payload = Vec::new();
    while let Some(packet) = flow.packets.first()
        && let Some(ring) = &sender.ring
    {
        let queued = sender.slots.get(packet);
        let len = (queued.len - flow.offset) as usize;
        if spill.len() + len > most || !spill.has_room(len) {
            break;
        }
        payload.resize(len, 0);
        let copied = ring.queue.read(packet, flow.offset, &mut payload);
        debug_assert_eq!(copied, len);
        spill.push(&payload, queued.flags, socket_type);
        flow.offset = 0;
        flow.packets.pop(&sender.slots);
        sender.give_back(packet);
        any = true;
    }
    if connection.ends[from.other()].party == Party::Host {
        sender.copied_for_host += spill.len() - before;
    }
    flow.spill = Some(spill).filter(|spill| !spill.is_empty());
    any
}
