//! Takeover from the last fabric, and handover to the next.

use std::os::fd::OwnedFd;
use std::time::Instant;

use taut_api::fabric::counters::SocketWord;
use taut_api::fabric::{ClosingQueue, ForeignFd, keep_urgent};

use super::VsockSwitch;
use crate::vsock::handover::{
    HandedOver, Written, read_pairs, read_spills, read_stopped, write_pairs, write_spills,
};
use crate::vsock::proto::{Actions, BySide, ConnId, Flow, GuestIdx, Party, Side, State};

/// Restored connections that need more than to be queued.
#[derive(Debug, Default)]
struct Unfinished {
    /// Connections to reset: the last fabric was killed, and the state of their payload is unknown,
    /// or payload that it had copied out of rings did not come.
    lost: Vec<ConnId>,
    /// Requests to the host for which `tautd` is to be asked again.
    unanswered: Vec<ConnId>,
    /// Connections that need their queue pairs, and which of their sides are attached.
    paired: Vec<(ConnId, BySide<bool>)>,
}

/// Takeover from the last fabric.
impl VsockSwitch {
    /// Begins to serve with the connections of the last fabric. Does nothing if it serves already.
    pub(crate) fn begin(&mut self, sockets: Vec<(u32, OwnedFd)>, now: Instant) {
        if std::mem::replace(&mut self.begun, true) {
            return;
        }
        self.now = now;
        let left = self.record.take();
        for (_, device) in self.guests.devices.iter_mut() {
            let Some(device) = device else { continue };
            device.count_connections(0, false);
            device.counters.set(SocketWord::Attached, 0);
            // Also after a kill: connections are lost then, but the ring is the same, and the
            // packets that it had in flight must be given back.
            device.stopped = read_stopped(&device.counters);
        }
        let mut unfinished = Unfinished::default();
        for written in left.connections {
            self.restore(written, left.orderly, now, &mut unfinished);
        }
        self.table.collect_free();
        for (number, socket) in sockets {
            self.take_socket(HandedOver::from_number(number), socket, left.orderly, now);
        }
        for (id, connection) in self.table.iter() {
            let lacks_payload = |flow: &Flow| flow.spill.as_ref().is_some_and(|spill| spill.is_empty());
            if left.orderly && connection.flows.iter().any(lacks_payload) {
                unfinished.lost.push(id);
            }
            for from in Side::BOTH {
                if let Party::Guest(guest) = connection.ends[from].party {
                    self.guests.senders[guest].copied_for_host += connection.copied_for_host(from);
                }
            }
        }
        for (id, attached) in unfinished.paired {
            if left.orderly && !self.has_all_pairs(id, attached) {
                unfinished.lost.push(id);
            }
        }
        for id in unfinished.lost {
            self.reset_lost(id);
        }
        for id in unfinished.unanswered {
            self.ask_again(id);
        }
        for id in self.table.ids() {
            self.resume(id);
        }
    }

    /// Adds a connection of the last fabric's, if both of its ends are still there.
    fn restore(&mut self, written: Written, orderly: bool, now: Instant, unfinished: &mut Unfinished) {
        let id = written.id;
        let parties = written.ends.0.map(|address| self.guests.party(address.cid));
        let [Some(a), Some(b)] = parties else { return };
        if a == b {
            return;
        }
        let b = if written.to_fabric && b == Party::Host { Party::Fabric } else { b };
        let (attached, needs_pairs) =
            (written.attached, written.to_fabric || written.attached.0 != [false; 2]);
        let mut connection = written.into_connection([a, b], now);
        for from in Side::BOTH {
            if let Party::Guest(guest) = connection.ends[from].party {
                let ring_is_to_start =
                    self.guests.devices[guest].as_ref().is_some_and(|device| device.stopped.is_some());
                let flow = &mut connection.flows[from];
                // A reset goes behind the payload, too.
                let may_wait = connection.state == State::Open || flow.pending.reset;
                flow.packets_unknown = orderly && ring_is_to_start && may_wait;
            }
        }
        let asks_tautd = connection.state == State::Requested && b == Party::Host;
        if self.add(connection, Some(id)).is_none() {
            return;
        }
        if needs_pairs {
            unfinished.paired.push((id, attached));
        }
        if !orderly {
            unfinished.lost.push(id);
        } else if asks_tautd {
            unfinished.unanswered.push(id);
        }
    }

    /// Takes a socket that the last fabric has handed over.
    fn take_socket(&mut self, of: HandedOver, socket: OwnedFd, orderly: bool, now: Instant) {
        match of {
            HandedOver::Spills | HandedOver::SpillsToHost => {
                if orderly && let Err(error) = read_spills(socket.into(), &mut self.table) {
                    tracing::error!("payload of VMCI connections from the last fabric is lost: {error}");
                }
            }
            HandedOver::QueuePairs if orderly => match read_pairs(socket.into()) {
                Ok(records) => self.restore_pairs(records),
                Err(error) => {
                    tracing::error!("queue pairs of VMCI connections from the last fabric are lost: {error}");
                }
            },
            HandedOver::QueuePairs => {}
            HandedOver::Client(device) => {
                let socket = ForeignFd::new(socket, &self.queue_of_clients(device));
                if let Some(guest) = self.guests.by_id(device)
                    && keep_urgent(&socket).is_ok()
                {
                    self.admit(guest, socket, now);
                }
            }
            HandedOver::Stream(id) => {
                let connection = self.table.get(id);
                let guest = connection.and_then(|connection| connection.guests().next());
                let device = guest.and_then(|guest| self.guests.devices[guest].as_mut());
                let queue = match (connection, device) {
                    (Some(connection), Some(device)) => match connection.host_side() {
                        Some(Side::Responder) => {
                            let port = connection.ends[Side::Responder].address.port;
                            Some(device.closing_queues.of_program(port))
                        }
                        _ => Some(device.closing_queues.of_clients()),
                    },
                    _ => None,
                };
                let is_wanted = queue.is_some();
                let socket = ForeignFd::new(socket, queue.unwrap_or(&ClosingQueue::unreported()));
                if orderly && is_wanted {
                    // Without its socket the connection is reset below.
                    let _ = self.host.streams.attach(id, socket, &self.epoll);
                }
            }
        }
    }

    /// Resets a connection of a fabric that was killed.
    fn reset_lost(&mut self, id: ConnId) {
        let Some(connection) = self.table.get(id) else { return };
        for guest in connection.guests() {
            self.guests.count(guest, SocketWord::Resets, 1);
        }
        self.end(id, None);
    }

    /// Asks `tautd` again for the program of an unanswered request.
    fn ask_again(&mut self, id: ConnId) {
        let Some(connection) = self.table.get(id) else { return };
        if let Party::Guest(guest) = connection.ends[Side::Requester].party {
            let to = connection.ends[Side::Responder].address.port;
            self.ask_tautd(guest, id, to);
        }
    }

    /// Goes on with a connection, or ends it if its ends may no longer talk, or if it is one with
    /// the host and its socket did not come. Queues both flows, whether they have something or not.
    fn resume(&mut self, id: ConnId) {
        let Some(connection) = self.table.get(id) else { return };
        let (was_over, host) = (connection.state == State::Over, connection.host_side());
        let fabric = connection.fabric_side().filter(|_| was_over);
        if !self.guests.may_have(connection) {
            self.end(id, None);
        }
        if let Some(host) = host {
            if was_over {
                self.tell_host(id, host);
            } else if !self.host.streams.has(id) {
                self.end(id, Some(host));
            }
        }
        if let Some(fabric) = fabric {
            self.tell_host(id, fabric);
        }
        for from in Side::BOTH {
            self.queue(id, from);
        }
        self.forget_if_closed(id);
    }

    /// Notes that the side of the host, or of the fabric, knows of the end, because the program's
    /// socket was closed.
    fn tell_host(&mut self, id: ConnId, host: Side) {
        let Some(connection) = self.table.get_mut(id) else { return };
        let mut actions = Actions::default();
        connection.host_is_told(host.other(), &mut actions);
        self.carry_out_rare(id, actions.rare);
    }
}

/// Handover to the next fabric.
impl VsockSwitch {
    /// Stops all rings and writes everything down. Returns the Unix sockets that the next fabric
    /// needs, with their numbers.
    pub(crate) fn stop(&mut self) -> Vec<(u32, OwnedFd)> {
        let guests: Vec<GuestIdx> = self.guests.devices.indices().collect();
        for guest in guests {
            self.stop_tx(guest);
            self.stop_rx(guest);
        }
        let (mut files, mut pairs) = (Vec::new(), None);
        if self.begun {
            for (to_guests, number) in [(true, HandedOver::Spills), (false, HandedOver::SpillsToHost)] {
                match write_spills(&self.table, to_guests) {
                    Ok(written) => files.extend(written.map(|file| (number.to_number(), file.into()))),
                    Err(error) => tracing::error!("payload of VMCI connections is lost: {error}"),
                }
            }
            match write_pairs(&self.pairs, &self.table, &self.guests) {
                Ok(written) => pairs = written,
                Err(error) => tracing::error!("queue pairs of VMCI connections are lost: {error}"),
            }
            self.record.write_all(&self.table);
        }
        self.quit = true;
        let streams = self.host.streams.duplicates().into_iter();
        let mut sockets: Vec<_> =
            streams.map(|(id, socket)| (HandedOver::Stream(id).to_number(), socket)).collect();
        sockets.extend(files);
        sockets.extend(pairs.map(|file| (HandedOver::QueuePairs.to_number(), file.into())));
        for (guest, socket) in self.host.clients.duplicates() {
            if let Some(device) = &self.guests.devices[guest] {
                sockets.push((HandedOver::Client(device.config.id).to_number(), socket));
            }
        }
        sockets
    }
}
