//! Rings come and go: a guest's driver begins, stops, starts anew; another fabric takes over.
//!
//! A transmit ring that starts where it stopped belongs to the same driver, whose connections go on; so do the packets that it
//! had sent and not got back. A ring that starts anywhere else is that of a guest that has started anew: its connections are
//! over.

use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use taut_api::fabric::PortId;
use taut_api::fabric::counters::SocketWord;
use taut_api::vmci::Cid;
use taut_virtq::device::socket::{RING_FEATURES, SocketRx, SocketTx};
use taut_virtq::device::{PositionLog, QueueConfig, Start};
use taut_virtq::features;
use taut_virtq::memory::GuestMemory;
use taut_virtq::socket_header::RW;

use super::connection::{Party, State, Turn};
use super::guest::{RingPlace, RxRing, TxRing};
use super::hub::Hub;
use super::{Shared, token};
use crate::sys::epoll::{EventFlags, signal};
use crate::vhost_user::device::{Device, Ring, StartError};

/// Feature bits of the device (virtio 1.2, 5.10.3): byte streams, and records.
const SOCKET_FEATURES: u64 = 1 << 0 | 1 << 1;

/// Receive and transmit. The event queue is the front end's.
const QUEUES: usize = 2;

const KICKS: EventFlags = EventFlags::IN.union(EventFlags::ET);

/// A client that has said nothing, among the sockets that are handed over: with its device's number.
const CLIENT: u32 = 1 << 31;

impl Hub {
    pub(super) fn start_tx(
        &mut self,
        guest: usize,
        memory: &Arc<GuestMemory>,
        ring: Ring,
    ) -> Result<(), StartError> {
        self.stop_tx(guest);
        let Ring { config, kick, call } = ring;
        let Some(known) = &mut self.guests[guest] else { return Ok(()) };
        let place = RingPlace::of(&config);
        let handed_over = config.start == Start::Recover;
        let goes_on = handed_over || known.stopped == Some(place);
        let in_flight = known.counters.in_flight();
        if !goes_on {
            in_flight.clear();
            self.forget_connections(guest);
        }
        let queue = SocketTx::new(memory, &config, in_flight)?;
        let kick = self.events.watch(kick, token::TX_KICK | guest as u64, KICKS)?;
        let sender = &mut self.senders[guest];
        sender.places.provide(config.size);
        sender.call = call;
        sender.called_at = queue.used_position();
        sender.ring = Some(TxRing { queue, place, _kick: kick });
        if let Some(known) = &mut self.guests[guest] {
            known.stop(None);
        }
        self.take_again(guest);
        let now = Instant::now();
        self.publish(now);
        self.wake(guest, now);
        Ok(())
    }

    /// Packets that were taken before: those of connections that go on find their places again, the others are given back.
    fn take_again(&mut self, guest: usize) {
        let Some(own) = self.guests[guest].as_ref().map(|guest| guest.config.cid) else { return };
        let known = self.waiting(guest);
        self.senders[guest].taken = known.len();
        loop {
            let Some(ring) = &mut self.senders[guest].ring else { return };
            if ring.queue.again() == 0 {
                break;
            }
            let packet = match ring.queue.take() {
                Ok(Some(packet)) => packet,
                Ok(None) => break,
                Err(fault) => return self.broken(guest, 1, fault.into()),
            };
            if known.contains(&packet.head) {
                continue;
            }
            let header = packet.header;
            let peer = u32::try_from(header.dst_cid).map_or(Cid(0), Cid);
            let found = self.table.find((own, header.src_port), (peer, header.dst_port));
            let found = found.filter(|_| header.op == RW && packet.payload >= header.len);
            let sender = &mut self.senders[guest];
            if let Some((number, from)) = found
                && let Some(connection) = self.table.get(number)
                && connection.state == State::Open
            {
                let flow = &mut connection.flows[from];
                flow.packets.push(&mut sender.places, packet.head, header.len, header.flags);
                sender.taken += 1;
            } else if let Some(ring) = &mut sender.ring {
                ring.queue.give_back(packet.head);
                self.touch_sender(guest);
            }
        }
        self.go_on_from(guest, &known);
    }

    /// Heads of a guest's packets that wait.
    fn waiting(&mut self, guest: usize) -> HashSet<u16> {
        let mut waiting = HashSet::new();
        for number in self.table.numbers() {
            let Some(connection) = self.table.get(number) else { continue };
            if connection.guests().any(|other| other == guest) {
                let packets = connection.flows[connection.side_of(guest)].packets;
                waiting.extend(packets.iter(&self.senders[guest].places).map(|(head, _)| head));
            }
        }
        waiting
    }

    /// A guest's ring has again what it had taken before, these among them. They are no longer all there when the guest writes to
    /// its used ring, or its front end makes it smaller: then it is no longer the guest that it was.
    fn go_on_from(&mut self, guest: usize, known: &HashSet<u16>) {
        let Some(ring) = &self.senders[guest].ring else { return };
        let taken: HashSet<u16> = ring.queue.taken().collect();
        if !known.is_subset(&taken) {
            self.forget_connections(guest);
            if let Some(ring) = &mut self.senders[guest].ring {
                for head in taken {
                    ring.queue.give_back(head);
                }
            }
            return self.touch_sender(guest);
        }
        for number in self.table.numbers() {
            let Some(connection) = self.table.get(number) else { continue };
            if connection.guests().any(|other| other == guest) {
                let from = connection.side_of(guest);
                let flow = &mut connection.flows[from];
                // The guest may have made another packet of the one that the receiver has a part of.
                flow.offset = flow.offset.min(flow.first_len(&self.senders[guest].places));
                self.has_turn(Turn { connection: number, from });
            }
        }
    }

    pub(super) fn stop_tx(&mut self, guest: usize) -> Option<u16> {
        self.awake.retain(|&other| other != guest);
        let sender = &mut self.senders[guest];
        sender.awake = false;
        if sender.owes_call {
            self.call_sender(guest);
        }
        let mut ring = self.senders[guest].ring.take()?;
        ring.queue.hand_over();
        let position = ring.queue.position();
        if let Some(known) = &mut self.guests[guest] {
            known.stop(Some(ring.place.stopped_at(position)));
        }
        Some(position)
    }

    pub(super) fn start_rx(
        &mut self,
        guest: usize,
        memory: &Arc<GuestMemory>,
        ring: Ring,
    ) -> Result<(), StartError> {
        self.stop_rx(guest);
        let Ring { config, kick, call } = ring;
        let mut queue = SocketRx::new(memory, &config)?;
        queue.suspend_kicks();
        let kick = self.events.watch(kick, token::RX_KICK | guest as u64, KICKS)?;
        let receiver = &mut self.receivers[guest];
        receiver.call = call;
        receiver.full = false;
        receiver.ring = Some(RxRing { queue, _kick: kick });
        self.list(guest);
        Ok(())
    }

    pub(super) fn stop_rx(&mut self, guest: usize) -> Option<u16> {
        let mut ring = self.receivers[guest].ring.take()?;
        ring.queue.publish();
        Some(ring.queue.position())
    }

    /// A guest is gone; the next one at its device begins anew.
    pub(super) fn gone(&mut self, guest: usize) {
        if let Some(known) = &mut self.guests[guest] {
            known.stopped = None;
        }
        self.forget_connections(guest);
    }

    /// A guest has sent something.
    pub(super) fn kicked(&mut self, guest: usize, now: Instant) {
        if guest < self.senders.len() {
            self.count(guest, SocketWord::Kicks, 1);
            self.wake(guest, now);
        }
    }

    /// A guest has buffers again.
    pub(super) fn has_buffers(&mut self, guest: usize) {
        let Some(receiver) = self.receivers.get_mut(guest) else { return };
        if std::mem::take(&mut receiver.full)
            && let Some(ring) = &mut receiver.ring
        {
            ring.queue.suspend_kicks();
        }
        self.count(guest, SocketWord::Kicks, 1);
        self.list(guest);
    }

    /// Begins with what the last fabric left.
    pub(super) fn begin(&mut self, streams: Vec<(u32, OwnedFd)>) {
        if std::mem::replace(&mut self.begun, true) {
            return;
        }
        let (orderly, written) = self.table.take_written();
        for guest in self.guests.iter_mut().flatten() {
            guest.count(0);
            guest.stopped = guest.counters.stopped().filter(|_| orderly);
        }
        let mut lost = Vec::new();
        let mut asked = Vec::new();
        for written in written {
            let number = written.number;
            let party = |(cid, _): (Cid, u32)| match cid {
                Cid::HOST => Some(Party::Host),
                cid => self.by_cid.get(&cid).copied().map(Party::Guest),
            };
            let [Some(a), Some(b)] = written.ends.map(party) else { continue };
            if a == b {
                continue;
            }
            let connection = written.into_connection([a, b]);
            let (state, ends) = (connection.state, connection.ends);
            if self.table.add(connection, Some(number)).is_none() {
                continue;
            }
            for end in ends {
                if let Party::Guest(guest) = end.party
                    && let Some(guest) = &mut self.guests[guest]
                {
                    guest.count(1);
                }
            }
            if state == State::Requested {
                self.half_open_by(ends[0].party, 1);
            }
            if !orderly {
                lost.push(number);
            } else if state == State::Requested && ends[1].party == Party::Host {
                asked.push(number);
            }
        }
        self.table.collect_free();
        for (number, socket) in streams {
            if number & CLIENT != 0 {
                if let Some(guest) = self.guest(PortId((number & !CLIENT) as u16)) {
                    self.admit(guest, socket, Instant::now());
                }
            } else if orderly && self.table.get(number).is_some() {
                let _ = self.attach_stream(number, socket);
            }
        }
        for number in lost {
            for guest in self.guests_of(number) {
                self.count(guest, SocketWord::Resets, 1);
            }
            self.reset(number, None);
        }
        for number in asked {
            let Some(connection) = self.table.get(number) else { continue };
            if let Party::Guest(guest) = connection.ends[0].party {
                let to = connection.ends[1].port;
                self.ask_host(guest, number, to);
            }
        }
        self.go_on();
    }

    /// Connections with the host whose sockets did not come are over, as are those that may be no more; all others have a turn,
    /// whether there is something for it or not.
    fn go_on(&mut self) {
        for number in self.table.numbers() {
            let Some(connection) = self.table.get(number) else { continue };
            let (state, host) = (connection.state, connection.host_side());
            if !self.is_allowed(number) {
                self.reset(number, None);
            }
            if let Some(host) = host
                && state != State::Over
                && !self.hosts.has(number)
            {
                self.reset(number, Some(host));
            }
            if state == State::Over && host.is_some() {
                // The host's side knows.
                self.host_knows(number);
            }
            for from in [0, 1] {
                self.has_turn(Turn { connection: number, from });
            }
            self.free_if_over(number);
        }
    }

    fn host_knows(&mut self, number: u32) {
        let Some(connection) = self.table.get(number) else { return };
        if let Some(host) = connection.host_side() {
            connection.flows[1 - host].over = true;
            self.free_if_over(number);
        }
    }

    pub(super) fn guests_of(&mut self, number: u32) -> Vec<usize> {
        self.table.get(number).map(|connection| connection.guests().collect()).unwrap_or_default()
    }

    /// Stops, and writes everything down.
    pub(super) fn stop(&mut self) -> Vec<(u32, OwnedFd)> {
        for guest in 0..self.guests.len() {
            self.stop_tx(guest);
            self.stop_rx(guest);
        }
        if self.begun {
            self.table.write_down();
        }
        self.quit = true;
        let mut streams = self.hosts.streams();
        for (guest, socket) in self.hosts.clients() {
            if let Some(guest) = &self.guests[guest] {
                streams.push((CLIENT | u32::from(guest.config.id.0), socket));
            }
        }
        streams
    }
}

/// A VMCI device as a session drives it.
#[derive(Debug)]
pub(super) struct SocketDevice {
    shared: Arc<Shared>,
    id: PortId,
    /// Its context ID, as the configuration space has it (virtio 1.2, 5.10.4).
    config_space: [u8; 8],
}

impl SocketDevice {
    pub(super) fn find(shared: &Arc<Shared>, id: PortId) -> Option<Self> {
        let hub = shared.enter();
        let guest = hub.guests[hub.guest(id)?].as_ref()?;
        let config_space = u64::from(guest.config.cid.0).to_le_bytes();
        Some(Self { shared: Arc::clone(shared), id, config_space })
    }

    /// Does something with the device, if it is still there; the thread then looks at it.
    fn with<T>(&self, action: impl FnOnce(&mut Hub, usize) -> T) -> Option<T> {
        let mut hub = self.shared.enter();
        let guest = hub.guest(self.id)?;
        let done = action(&mut hub, guest);
        drop(hub);
        self.shared.waker.wake();
        Some(done)
    }
}

impl Device for SocketDevice {
    fn id(&self) -> PortId {
        self.id
    }

    fn queues(&self) -> usize {
        QUEUES
    }

    fn offered(&self) -> u64 {
        RING_FEATURES | SOCKET_FEATURES | features::PROTOCOL_FEATURES
    }

    fn config_space(&self) -> &[u8] {
        &self.config_space
    }

    fn runs(&self, queue: usize) -> bool {
        let hub = self.shared.enter();
        hub.guest(self.id).is_some_and(|guest| {
            if queue == 0 { hub.receivers[guest].ring.is_some() } else { hub.senders[guest].ring.is_some() }
        })
    }

    fn start_ring(&self, queue: usize, memory: &Arc<GuestMemory>, ring: Ring) -> Result<(), StartError> {
        let start = |hub: &mut Hub, guest| {
            if queue == 0 { hub.start_rx(guest, memory, ring) } else { hub.start_tx(guest, memory, ring) }
        };
        self.with(start).unwrap_or(Ok(()))
    }

    fn stop_ring(&self, queue: usize) -> Option<u16> {
        self.with(|hub, guest| if queue == 0 { hub.stop_rx(guest) } else { hub.stop_tx(guest) })?
    }

    fn set_call(&self, queue: usize, call: Option<Arc<OwnedFd>>) {
        self.with(|hub, guest| {
            let place =
                if queue == 0 { &mut hub.receivers[guest].call } else { &mut hub.senders[guest].call };
            *place = call;
        });
    }

    fn interrupt_all(&self) {
        self.with(|hub, guest| {
            let calls = [&hub.receivers[guest].call, &hub.senders[guest].call];
            calls.into_iter().flatten().for_each(signal);
        });
    }

    fn position_in_memory(
        &self,
        memory: &Arc<GuestMemory>,
        queue: usize,
        config: &QueueConfig,
    ) -> Option<u16> {
        if queue == 0 {
            return SocketRx::new(memory, config).ok().map(|queue| queue.position());
        }
        let hub = self.shared.enter();
        let guest = hub.guests[hub.guest(self.id)?].as_ref()?;
        SocketTx::new(memory, config, guest.counters.in_flight()).ok().map(|queue| queue.position())
    }

    fn gone(&self) {
        self.with(Hub::gone);
    }

    fn position_log(&self, _queue: usize) -> Option<PositionLog> {
        None
    }
}
