//! Relief of rings that are crowded by packets for receivers that take nothing.
//!
//! A guest has one ring for all of its connections. Packets that wait in it for a receiver without
//! buffers would in the end stop all of them. So when a ring is crowded, packets of flows that made
//! no progress for a while are copied out of the ring, into memory that is bounded by what was
//! promised for their receivers. From then on all packets of such a flow are copied, until the
//! receiver has taken what was.

use std::time::{Duration, Instant};

use super::VsockSwitch;
use crate::vsock::guest::Sender;
use crate::vsock::proto::{Connection, FlowId, GuestIdx, Party, Pledged, Side, SocketType};

/// A flow that has handed over nothing for this long makes no progress.
const STUCK: Duration = Duration::from_millis(1);

impl VsockSwitch {
    /// Copies packets out of a guest's ring that has been crowded for a while.
    pub(super) fn relieve(&mut self, guest: GuestIdx, now: Instant) {
        let Self { table, guests, sched, .. } = self;
        let sender = &mut guests.senders[guest];
        sender.relief_is_due = false;
        let Some(ring) = sender.ring.as_ref().filter(|_| sender.is_crowded()) else { return };
        let mut relieved = false;
        for packet in ring.queue.taken() {
            let FlowId { connection: id, from } = sender.slots.flow_of(packet);
            let Some(connection) = table.get_mut(id) else { continue };
            let moves = connection.flows[from].moved.is_some_and(|moved| now - moved < STUCK);
            if let Party::Guest(receiver) = connection.ends[from.other()].party
                && !moves
            {
                let pledged = guests.receivers[receiver].pledged;
                relieved |= spill(connection, from, sender, pledged);
                if connection.socket_type == SocketType::SeqPacket && pledged.is_too_much() {
                    // Short records do not wait for their reader where they are not copied.
                    sched.turns.queue(FlowId { connection: id, from }, connection);
                }
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

/// Copies the packets of a flow out of its sender's ring, as far as the sender was promised room
/// for them. `pledged` is what was promised for the receiver. Returns `true` if any packet was
/// given back.
pub(super) fn spill(connection: &mut Connection, from: Side, sender: &mut Sender, pledged: Pledged) -> bool {
    let socket_type = connection.socket_type;
    // Senders of records are promised more than others.
    if socket_type == SocketType::SeqPacket && pledged.is_too_much() {
        return false;
    }
    let flow = &mut connection.flows[from];
    let promised = flow.promise.outstanding(&flow.window) as usize;
    let mut spill = flow.spill.take().unwrap_or_default();
    let mut any = false;
    let mut payload = Vec::new();
    while let Some(packet) = flow.packets.first()
        && let Some(ring) = &sender.ring
    {
        let queued = sender.slots.get(packet);
        let len = (queued.len - flow.offset) as usize;
        if spill.len() + len > promised || !spill.has_room(len) {
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
    flow.spill = Some(spill).filter(|spill| !spill.is_empty());
    any
}
