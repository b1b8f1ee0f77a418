//! Kicks, start and stop of guests' rings.

use std::time::Instant;

use taut_api::fabric::counters::SocketWord;
use taut_virtq::Start;
use taut_virtq::device::socket::{SocketRx, SocketTx};

use super::VsockSwitch;
use crate::net::queue::QueueIdx;
use crate::sys::epoll::EventFlags;
use crate::vhost_user::device::{Ring, RingSetup, StartError};
use crate::vsock::guest::{EventSource, RingPlace, RxRing, TxRing};
use crate::vsock::handover::{take_up_packets, write_stopped};
use crate::vsock::proto::{FlowId, GuestIdx};

const KICKS: EventFlags = EventFlags::IN.union(EventFlags::ET);

/// Transmit rings.
impl VsockSwitch {
    /// Handles a kick of a guest that has sent packets.
    pub(super) fn on_transmit_kick(&mut self, guest: GuestIdx, now: Instant) {
        if self.guests.senders.contains(guest) {
            self.guests.count(guest, SocketWord::Kicks, 1);
            self.poll(guest, now);
        }
    }

    /// Polls a guest's transmit ring until it has been silent for a while.
    fn poll(&mut self, guest: GuestIdx, now: Instant) {
        if self.guests.senders[guest].ring.is_some() {
            self.sched.polling.wake(guest, now);
        }
    }

    /// Starts a guest's transmit ring. A ring that starts where it stopped belongs to the same
    /// driver, whose connections go on. Any other ring is that of a guest that has started anew:
    /// its connections are over.
    pub(crate) fn start_tx(&mut self, guest: GuestIdx, ring: Ring) -> Result<(), StartError> {
        self.stop_tx(guest);
        let Ring { setup: RingSetup { memory, config }, kick, call } = ring;
        let Some(device) = &self.guests.devices[guest] else { return Ok(()) };
        let place = RingPlace::of(&config);
        let goes_on = config.start == Start::Recover || device.stopped == Some(place);
        let in_flight = device.counters.in_flight();
        if !goes_on {
            in_flight.clear();
            self.end_all_of(guest);
        }
        let queue = SocketTx::new(&memory, &config, in_flight)?;
        let kick = self.epoll.watch(kick, EventSource::TransmitKick(guest).token(), KICKS)?;
        let sender = &mut self.guests.senders[guest];
        sender.slots.provide(config.size);
        sender.call = call;
        sender.interrupted_at = queue.used_position();
        sender.ring = Some(TxRing { queue, place, _kick: kick });
        self.set_stopped(guest, None);
        self.take_up(guest);
        let now = Instant::now();
        // Packets that filled the ring before it stopped leave the guest no room to send any, so
        // no packet would call for relief.
        let sender = &mut self.guests.senders[guest];
        if sender.is_crowded() {
            self.sched.deferred.relief(guest, sender, now);
        }
        self.publish(now);
        self.poll(guest, now);
        Ok(())
    }

    /// Goes on with the packets that were taken from a guest's ring before.
    fn take_up(&mut self, guest: GuestIdx) {
        let Self { table, guests, sched, .. } = self;
        let Some(own) = guests.devices[guest].as_ref().map(|device| device.config.cid) else { return };
        let sender = &mut guests.senders[guest];
        let taken_up = match take_up_packets(guest, own, sender, table) {
            Ok(taken_up) => taken_up,
            Err(fault) => return self.ring_broken(guest, QueueIdx::FIRST_TRANSMIT, fault.into()),
        };
        if taken_up.gave_back {
            sched.unpublished.add_sender(guest, sender);
        }
        match taken_up.incomplete {
            None => self.resume_flows(guest),
            Some(packets) => self.give_up_packets(guest, &packets),
        }
    }

    /// Queues the flows of a guest whose ring is back.
    fn resume_flows(&mut self, guest: GuestIdx) {
        for id in self.table.ids_of(guest) {
            let Some(connection) = self.table.get_mut(id) else { continue };
            let from = connection.side_of(guest);
            let flow = &mut connection.flows[from];
            flow.packets_unknown = false;
            // The guest may have changed the packet of which the receiver has a part.
            flow.offset = flow.offset.min(flow.first_len(&self.guests.senders[guest].slots));
            self.sched.turns.queue(FlowId { connection: id, from }, connection);
        }
    }

    /// Ends the connections of a guest in whose ring packets that connections wait for are missing
    /// or have another length. The guest has written to its used ring or to these packets, or its
    /// front end has made the ring smaller.
    fn give_up_packets(&mut self, guest: GuestIdx, packets: &[u16]) {
        self.end_all_of(guest);
        let sender = &mut self.guests.senders[guest];
        for &packet in packets {
            sender.give_back(packet);
        }
        self.sched.unpublished.add_sender(guest, sender);
    }

    /// Stops a guest's transmit ring. Returns its position if it ran.
    pub(crate) fn stop_tx(&mut self, guest: GuestIdx) -> Option<u16> {
        self.sched.polling.stop(guest);
        if self.guests.senders[guest].owes_interrupt {
            self.guests.interrupt_sender(guest);
        }
        let mut ring = self.guests.senders[guest].ring.take()?;
        ring.queue.hand_over();
        let position = ring.queue.position();
        self.set_stopped(guest, Some(ring.place.stopped_at(position)));
        Some(position)
    }

    /// Remembers where a guest's transmit ring has stopped; `None` while it runs.
    fn set_stopped(&mut self, guest: GuestIdx, place: Option<RingPlace>) {
        if let Some(device) = &mut self.guests.devices[guest] {
            write_stopped(&device.counters, place);
            device.stopped = place;
        }
    }
}

/// Receive rings.
impl VsockSwitch {
    /// Handles a kick of a guest that has provided buffers.
    pub(super) fn on_receive_kick(&mut self, guest: GuestIdx) {
        let Some(receiver) = self.guests.receivers.get_mut(guest) else { return };
        if std::mem::take(&mut receiver.full)
            && let Some(ring) = &mut receiver.ring
        {
            ring.queue.suspend_kicks();
        }
        self.guests.count(guest, SocketWord::Kicks, 1);
        self.sched.turns.mark_busy(guest);
    }

    /// Starts a guest's receive ring.
    pub(crate) fn start_rx(&mut self, guest: GuestIdx, ring: Ring) -> Result<(), StartError> {
        self.stop_rx(guest);
        let Ring { setup: RingSetup { memory, config }, kick, call } = ring;
        let mut queue = SocketRx::new(&memory, &config)?;
        queue.suspend_kicks();
        let kick = self.epoll.watch(kick, EventSource::ReceiveKick(guest).token(), KICKS)?;
        let receiver = &mut self.guests.receivers[guest];
        receiver.call = call;
        receiver.note_start();
        receiver.ring = Some(RxRing { queue, _kick: kick });
        self.sched.turns.mark_busy(guest);
        Ok(())
    }

    /// Stops a guest's receive ring. Returns its position if it ran.
    pub(crate) fn stop_rx(&mut self, guest: GuestIdx) -> Option<u16> {
        let mut ring = self.guests.receivers[guest].ring.take()?;
        ring.queue.publish();
        Some(ring.queue.position())
    }
}
