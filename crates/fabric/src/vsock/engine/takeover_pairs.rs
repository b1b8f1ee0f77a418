//! Takeover of queue pairs from the last fabric.

use taut_queue_pair::End;

use super::VsockSwitch;
use crate::vsock::handover::{ChannelRecord, LeftRecord, PairRecord};
use crate::vsock::proto::{BySide, ConnId, Connection, FlowId, GuestIdx, Party, Side, SocketType, State};
use crate::vsock::queue_pair::{AttachedEnd, Control, EndId};

impl VsockSwitch {
    /// Goes on with the queue pairs of the last fabric, after its connections. Whatever does not
    /// fit the connections, or the words of the channels, is left out.
    pub(super) fn restore_pairs(&mut self, records: Vec<PairRecord>) {
        for record in records {
            match record {
                PairRecord::Control(id, control) => self.restore_control(id, control),
                PairRecord::Channel(channel) => {
                    if self.restore_channel(&channel).is_none()
                        && let Some(control) = channel.control
                    {
                        // Its connection is reset, so that the program learns that it has no
                        // channel any more.
                        self.pairs.remove_control(control);
                    }
                }
                PairRecord::Flow { connection: id, from, skew, unframed, cut, receive_shut } => {
                    self.restore_flow(FlowId { connection: id, from }, skew, unframed);
                    if let Some(connection) = self.table.get_mut(id) {
                        let flow = &mut connection.flows[from];
                        (flow.cut, flow.receive_shut) = (cut, receive_shut);
                    }
                }
                PairRecord::Left(left) => self.restore_left(left),
            }
        }
    }

    fn restore_control(&mut self, id: ConnId, control: Control) {
        if self.table.get(id).is_some_and(|connection| connection.fabric_side().is_some()) {
            self.pairs.add_control(id, control);
        }
    }

    /// Goes on with a channel. Returns `None` if that is not possible. The channel stays with its
    /// control connection if the connection that was attached is gone.
    fn restore_channel(&mut self, record: &ChannelRecord) -> Option<()> {
        let &ChannelRecord { device, channel, of, control, announced, is_final } = record;
        let guest = self.guests.by_id(device)?;
        let was_attached = of.is_some();
        let of = of.and_then(|(id, side)| self.may_be_attached(guest, id, side));
        let is_lost = was_attached && of.is_none();
        if is_lost && control.is_none() {
            return None;
        }
        // A control connection has one channel.
        let control = match control {
            Some(id) => {
                let is_its = |connection: &Connection| {
                    connection.fabric_side().is_some() && connection.guests().next() == Some(guest)
                };
                self.table.get(id).filter(|&connection| is_its(connection))?;
                self.pairs.control(id).filter(|control| control.channel.is_none())?;
                Some(id)
            }
            None => None,
        };
        let region = self.pairs.region_mut(guest)?;
        let resumed = region.attach_again(channel, |channel, number| {
            AttachedEnd::resume(channel, number, of, control, announced, is_final).ok()
        });
        if !resumed {
            return None;
        }
        self.sched.patrols.begin(self.now);
        if is_lost && let Some(end) = self.pairs.region_mut(guest).and_then(|it| it.end_mut(channel)) {
            end.tell_end(End::Reset);
            self.pairs.signal(control);
        }
        if let Some(control) = control.and_then(|id| self.pairs.control(id)) {
            control.channel = Some(channel);
        }
        if let Some(EndId { connection: id, side, .. }) = of
            && let Some(connection) = self.table.get_mut(id)
        {
            connection.channels[side] = Some(channel);
            connection.has_left[side] = control.is_none();
        }
        Some(())
    }

    /// The end of a guest's connection, if it may be attached to a channel.
    fn may_be_attached(&self, guest: GuestIdx, id: ConnId, side: Side) -> Option<EndId> {
        let connection = self.table.get(id)?;
        let fits = connection.state != State::Requested
            && connection.socket_type == SocketType::Stream
            && connection.ends[side].party == Party::Guest(guest)
            && connection.ends[side.other()].party != Party::Fabric
            && connection.channels[side].is_none();
        fits.then(|| EndId::of(connection, side))
    }

    fn restore_flow(&mut self, FlowId { connection: id, from }: FlowId, skew: u32, unframed: u32) {
        let Self { table, pairs, .. } = self;
        let Some(connection) = table.get_mut(id) else { return };
        let in_ring = pairs.end(connection, from).map(|end| end.out.available().unwrap_or(0));
        let own = pairs.control(id).filter(|_| connection.fabric_side() == Some(from));
        let flow = &mut connection.flows[from];
        flow.skew = skew;
        flow.unframed = match (in_ring, own) {
            (Some(in_ring), _) => unframed.min(in_ring),
            (None, Some(control)) => control.waiting(),
            (None, None) => 0,
        };
        // The credit that the other side knows was counted with the skew.
        let of = from.other();
        connection.flows[of].advertised.credit = connection.credit_of(of);
    }

    /// Goes on with what a side has left in the rings of its channel. The channel's words tell
    /// where the rings end.
    fn restore_left(&mut self, LeftRecord { connection: id, side, returned, before_ring }: LeftRecord) {
        let Self { table, pairs, .. } = self;
        let Some(connection) = table.get_mut(id).filter(|it| it.has_left[side]) else { return };
        let Some(end) = pairs.end(connection, side) else { return };
        connection.flows[side.other()].returned = returned.min(end.into.size());
        connection.flows[side].before_ring = before_ring;
    }

    /// Tells whether a connection has what its record says: its channels, or what was said on a
    /// control connection. If so, begins with its rings.
    pub(super) fn has_all_pairs(&mut self, id: ConnId, attached: BySide<bool>) -> bool {
        self.note_rings(id);
        let Some(connection) = self.table.get(id) else { return true };
        if connection.fabric_side().is_some() {
            return connection.state == State::Over || self.pairs.control(id).is_some();
        }
        let has_all =
            Side::BOTH.into_iter().all(|side| connection.channels[side].is_some() == attached[side]);
        for side in Side::BOTH.into_iter().filter(|&side| has_all && attached[side]) {
            self.signal_if_waiting(id, side);
            self.begin_rings(id, side);
            self.limit_drain(id, side);
        }
        has_all
    }

    /// Signals a program that waits. The last fabric may have signalled it already.
    fn signal_if_waiting(&mut self, id: ConnId, side: Side) {
        let Some(connection) = self.table.get(id) else { return };
        let Some(end) = self.pairs.end(connection, side) else { return };
        let waits = end.out.must_signal() | end.into.must_signal();
        let control = end.control.filter(|_| waits);
        self.pairs.signal(control);
    }
}
