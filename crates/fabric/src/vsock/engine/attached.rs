//! Ends of connections that are attached to channels: what becomes of them when the connection
//! ends, or when the region goes.
//!
//! A channel belongs to its control connection, and to the end of a connection that is attached.
//!
//! * If the connection ends first, the program is told by the end word of its ring IN. The channel
//!   stays in use until the program closes the control connection.
//! * If the control connection ends first, the program leaves the channel: see
//!   [`leaving`](super::leaving).
//! * If the guest starts anew, or its region is replaced, its channels are free at once. Nothing is
//!   read from them any more.

use std::os::fd::OwnedFd;

use taut_api::fabric::PortId;
use taut_api::fabric::counters::SocketWord;
use taut_queue_pair::End;

use super::{VsockEvent, VsockSwitch};
use crate::vsock::proto::{ChannelIdx, ConnId, Connection, Flow, FlowId, GuestIdx, Party, Side, State};
use crate::vsock::queue_pair::{EndId, GuestRegion, Noted, PairFault, RegionPlace};

/// Returns the end that a program is told of once its stream is over.
pub(super) fn end_of(flow: &Flow) -> End {
    if flow.cut { End::Reset } else { End::Finished }
}

/// Connections end.
impl VsockSwitch {
    /// Settles the channels of a connection that is over: their programs are told of the end, bytes
    /// that come later do not count, and what was left is delivered for a limited time. If it is a
    /// control connection, its program leaves its channel. A further call signals nobody.
    pub(super) fn settle_over(&mut self, id: ConnId) {
        let Some(connection) = self.table.get(id) else { return };
        if connection.fabric_side().is_some() {
            return self.end_control(id);
        }
        for side in Side::BOTH {
            self.settle_side(id, side);
        }
    }

    /// Settles one side of a connection that is over.
    fn settle_side(&mut self, id: ConnId, side: Side) {
        let is_noted = self.note_end(id, side);
        let Self { table, pairs, sched, .. } = self;
        let Some(connection) = table.get_mut(id) else { return };
        let Some(end) = pairs.end(connection, side) else { return };
        let from = side.other();
        let flow = &connection.flows[from];
        let is_told = (flow.over || flow.cut) && end.tell_end(end_of(flow));
        if is_noted || is_told {
            let control = end.control;
            pairs.signal(control);
        }
        pairs.note_left(connection);
        // The reset follows what goes into the ring, if anything does.
        sched.turns.queue(FlowId { connection: id, from }, connection);
        self.limit_drain(id, side);
    }

    /// Notes how much a side that sends no more has left in its ring. Bytes that its guest adds
    /// afterwards do not count. Returns whether that was not known before.
    ///
    /// Signals the program if a thread waits for room: nobody takes its bytes any more, and the
    /// peer may make room much later, or never. That happens once when the side ends, and once when
    /// its flow is over, however often a peer resets.
    pub(super) fn note_end(&mut self, id: ConnId, side: Side) -> bool {
        let Self { table, pairs, .. } = self;
        let Some(connection) = table.get_mut(id).filter(|connection| connection.flows[side].ended) else {
            return false;
        };
        let Party::Guest(guest) = connection.ends[side].party else { return false };
        let Some(end) = pairs.end(connection, side) else { return false };
        let was_final = std::mem::replace(&mut end.is_final, true);
        let left = end.out.available();
        let flow = &connection.flows[side];
        let noted = if flow.over || flow.cut { Noted::Over } else { Noted::Ended };
        let is_news = noted > end.noted;
        end.noted = noted.max(end.noted);
        if is_news && end.out.must_signal() {
            let control = end.control;
            pairs.signal(control);
        }
        if was_final {
            return false;
        }
        let flow = &mut connection.flows[side];
        if flow.over || flow.cut {
            flow.unframed = 0;
            return true;
        }
        match left {
            Ok(left) => {
                flow.unframed = left;
                self.queue(id, side);
            }
            Err(fault) => {
                self.report_fault(guest, &fault.into());
                self.end(id, None);
            }
        }
        true
    }

    /// Notes in the record and in the counters by what the sides of a connection exchange their
    /// bytes.
    pub(super) fn note_rings(&mut self, id: ConnId) {
        let Some(connection) = self.table.get(id) else { return };
        for (side, is_by_rings) in self.record.note_rings(id, connection) {
            self.guests.count_attached(connection.ends[side].party, is_by_rings);
        }
    }

    /// Has the channels of a forgotten connection leave it.
    pub(super) fn leave_channels(&mut self, connection: &Connection) {
        for side in Side::BOTH {
            if connection.is_by_rings(side) {
                self.guests.count_attached(connection.ends[side].party, false);
            }
            let Some(end) = self.pairs.end(connection, side) else { continue };
            end.tell_end(end_of(&connection.flows[side.other()]));
            end.of = None;
            let control = end.control;
            self.pairs.signal(control);
            if control.is_none()
                && let (Some(channel), Party::Guest(guest)) =
                    (connection.channels[side], connection.ends[side].party)
            {
                self.free(guest, channel);
            }
        }
    }

    /// Resets a connection because of what a guest wrote into the words of its channel.
    pub(super) fn fail_end(&mut self, guest: GuestIdx, end: EndId, fault: PairFault) {
        let EndId { connection: id, serial, side } = end;
        let is_it = |connection: &&Connection| connection.serial == serial;
        let Some(connection) = self.table.get(id).filter(is_it) else { return };
        // The words of a connection that was reset say nothing.
        let is_reset = connection.flows.iter().all(|flow| flow.over || flow.cut);
        if connection.channels[side].is_none() || connection.state == State::Over && is_reset {
            return;
        }
        self.report_fault(guest, &fault);
        self.end(id, None);
    }

    /// Counts what a guest wrote into the words of a channel, and reports it if that is due.
    pub(super) fn report_fault(&mut self, guest: GuestIdx, fault: &PairFault) {
        self.sched.patrols.alarm(self.now);
        let Some(device) = &mut self.guests.devices[guest] else { return };
        device.counters.add(SocketWord::Malformed, 1);
        device.counters.add(SocketWord::Resets, 1);
        if device.may_report(self.now) {
            let what = format!("a connection is reset because of its queue pair: {fault}");
            self.events.push(VsockEvent::Violation { port: device.config.id, what });
        }
    }

    /// Ends the use of a channel.
    pub(super) fn free(&mut self, guest: GuestIdx, channel: ChannelIdx) {
        if let Some(region) = self.pairs.region_mut(guest) {
            region.free(channel);
        }
    }
}

/// Regions come and go.
impl VsockSwitch {
    /// Tells whether a device's guest has this part of this file as its region, or the device is
    /// not configured and needs none.
    pub(crate) fn has_region(&self, id: PortId, file: &OwnedFd, place: RegionPlace) -> bool {
        let Some(guest) = self.guests.by_id(id) else { return true };
        self.pairs.region(guest).is_some_and(|region| region.is(file, place))
    }

    /// Sets the region of a device's guest. Nothing of the one before goes on.
    pub(crate) fn set_region(&mut self, id: PortId, region: GuestRegion) {
        let Some(guest) = self.guests.by_id(id) else { return };
        for id in self.leave_region(guest) {
            self.end(id, None);
        }
        self.pairs.set_region(guest, region);
    }

    /// Takes the region from a device's guest. Nothing of it goes on.
    pub(crate) fn remove_region(&mut self, id: PortId) {
        let Some(guest) = self.guests.by_id(id) else { return };
        for id in self.leave_region(guest) {
            self.end(id, None);
        }
        self.pairs.remove_region(guest);
    }

    /// Frees all channels of a guest at once. Returns the connections that were attached, and their
    /// control connections.
    pub(super) fn leave_region(&mut self, guest: GuestIdx) -> Vec<ConnId> {
        let Self { table, pairs, .. } = self;
        let Some(region) = pairs.region_mut(guest) else { return Vec::new() };
        let ends: Vec<_> = region.ends().map(|(channel, end)| (channel, end.of, end.control)).collect();
        let mut left = Vec::new();
        for (channel, of, control) in ends {
            region.free(channel);
            if let Some(EndId { connection: id, serial, side }) = of
                && let Some(connection) = table.get_mut(id).filter(|it| it.serial == serial)
            {
                connection.detach(side);
                connection.flows[side].cut = true;
                left.push(id);
            }
            left.extend(control);
        }
        for &id in &left {
            if let Some(control) = pairs.control(id) {
                control.channel = None;
            }
        }
        for &id in &left {
            self.note_rings(id);
        }
        left
    }
}
