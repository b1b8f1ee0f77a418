//! Programs leave their channels, by the end of the control connection.
//!
//! If the connection itself goes on, the end of it that was attached returns to packets, and no
//! byte is lost:
//!
//! * What the program has not read in its ring IN goes to its guest by packets, before all later
//!   bytes of the peer. It stays in the ring until the guest has credit and buffers for it.
//! * What is left in the ring OUT goes to the peer before all packets that the guest sends from now
//!   on.
//! * The channel is free again once nothing is left in either ring.
//!
//! If the guest has closed the connection as well, or if it is over, the program is gone. What is
//! left in the ring OUT is still delivered, for a while. What is in IN is dropped.

use super::VsockSwitch;
use super::looks::take_up_bytes;
use crate::vsock::proto::{ChannelIdx, ConnId, Connection, FlowId, GuestIdx, Party, Side, State};
use crate::vsock::queue_pair::{EndId, PairFault, QueuePairs};

impl VsockSwitch {
    /// Has the program leave the channel of a control connection that is over.
    pub(super) fn end_control(&mut self, id: ConnId) {
        let guest = self.table.get(id).and_then(|connection| connection.guests().next());
        let channel = self.pairs.control(id).and_then(|control| control.channel.take());
        let (Some(guest), Some(channel)) = (guest, channel) else { return };
        let Some(end) = self.pairs.region_mut(guest).and_then(|region| region.end_mut(channel)) else {
            return;
        };
        end.control = None;
        let of = end.of;
        if let Some(of) = of {
            self.leave(guest, of);
        }
        self.free_if_empty(guest, channel);
        // Last, so that a channel in which nothing is left has no limit.
        if let Some(of) = of {
            self.limit_drain(of.connection, of.side);
        }
    }

    /// Has an end of a connection leave its channel.
    fn leave(&mut self, guest: GuestIdx, EndId { connection: id, serial, side }: EndId) {
        let Self { table, pairs, .. } = self;
        let Some(connection) = table.get_mut(id).filter(|it| it.serial == serial) else { return };
        connection.has_left[side] = true;
        if connection.state == State::Over {
            // The guest gets no more bytes of a connection of whose end it knows.
            self.discard(id, side.other());
        } else if let Err(fault) = note_what_is_left(pairs, connection, side) {
            self.note_rings(id);
            self.report_fault(guest, &fault);
            return self.end(id, None);
        }
        self.note_rings(id);
        for from in Side::BOTH {
            self.go_on_without(id, from);
        }
    }

    /// Goes on with a flow of a connection of which a side has left its channel. The other side's
    /// ring may not have been looked at, because there was no room for its bytes.
    fn go_on_without(&mut self, id: ConnId, from: Side) {
        let Some(connection) = self.table.get_mut(id) else { return };
        let flow = FlowId { connection: id, from };
        connection.flows[from].empty_looks = 0;
        if connection.is_from_ring(from) && !connection.has_left[from] && !connection.flows[from].ended {
            self.sched.turns.pace.look_later(flow, connection, self.now);
        }
        self.sched.turns.queue(flow, connection);
    }

    /// Settles what a shutdown by the guest of an end means that is attached, or has left its
    /// channel. A guest that takes no more bytes need not have read its ring to be told that no
    /// more follow.
    pub(super) fn on_shutdown_of_attached(&mut self, id: ConnId, side: Side) {
        let Some(connection) = self.table.get_mut(id) else { return };
        if connection.flows[side].receive_shut {
            connection.flows[side.other()].returned = 0;
        }
        self.pairs.note_left(connection);
        self.queue(id, side.other());
        self.limit_drain(id, side);
    }

    /// Limits the time for which what is left in a channel is delivered, if its program is gone. A
    /// program that has left its channel and goes on may have a peer that takes its time.
    pub(super) fn limit_drain(&mut self, id: ConnId, side: Side) {
        let Some(connection) = self.table.get(id).filter(|it| it.has_left[side]) else { return };
        let flow = &connection.flows[side];
        let is_gone = connection.state == State::Over || flow.ended && flow.receive_shut;
        if is_gone
            && let (Some(channel), Party::Guest(guest)) =
                (connection.channels[side], connection.ends[side].party)
        {
            self.pairs.drain(guest, channel, self.now);
        }
    }

    /// Frees a channel that its program has left, once nothing of it is left to be handed over.
    pub(super) fn free_if_empty(&mut self, guest: GuestIdx, channel: ChannelIdx) {
        let Some(end) = self.pairs.region(guest).and_then(|region| region.end(channel)) else { return };
        if end.control.is_some() {
            return;
        }
        let connection = end.of.and_then(|of| {
            let connection = self.table.get_mut(of.connection)?;
            (connection.serial == of.serial).then_some((of.side, connection))
        });
        if let Some((side, connection)) = connection {
            let (own, other) = (&connection.flows[side], &connection.flows[side.other()]);
            if own.unframed > 0 && !own.over || other.returned > 0 && !other.over {
                return;
            }
            connection.detach(side);
        }
        self.free(guest, channel);
    }

    /// Gives up what is left in channels whose programs have been gone for too long.
    pub(super) fn give_up_drains(&mut self) {
        while let Some((guest, channel)) = self.pairs.due_drain(self.now) {
            let end = self.pairs.region(guest).and_then(|region| region.end(channel));
            if let Some(EndId { connection: id, .. }) = end.and_then(|end| end.of) {
                match self.table.get(id).map(|connection| connection.state) {
                    Some(State::Over) => {
                        for from in Side::BOTH {
                            self.discard(id, from);
                            self.queue(id, from);
                        }
                        self.settle_over(id);
                    }
                    _ => self.end(id, None),
                }
            }
            self.free_if_empty(guest, channel);
        }
    }
}

/// Notes how much an end that leaves its channel has in its rings: bytes for the peer, and bytes of
/// the peer that return to packets.
fn note_what_is_left(
    pairs: &mut QueuePairs,
    connection: &mut Connection,
    side: Side,
) -> Result<(), PairFault> {
    let Some(end) = pairs.end(connection, side) else { return Ok(()) };
    let flow = &mut connection.flows[side];
    if !end.is_final {
        take_up_bytes(end, flow)?;
        end.is_final = true;
    }
    flow.before_ring = Some(flow.waiting());
    let takes_more = !flow.receive_shut;
    if takes_more {
        // The guest's position is read here and never again.
        connection.flows[side.other()].returned = end.into.used()?;
    }
    Ok(())
}
