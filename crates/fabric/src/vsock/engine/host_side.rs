//! The host's side: listening sockets, clients, answers of `tautd`, and events of streams.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Instant;

use taut_api::fabric::counters::SocketWord;
use taut_api::fabric::{ClosingQueue, ForeignFd, PortId};
use taut_api::vmci::Cid;

use super::{VsockEvent, VsockSwitch};
use crate::sys::epoll::EventFlags;
use crate::vsock::host::{ConnectRequest, HOST_BUFFER};
use crate::vsock::proto::{
    Address, BySide, ConnId, Credit, End, FlowId, GuestIdx, Party, Rare, Side, SocketType, State,
};
use crate::vsock::queue_pair::is_service;

/// Most clients accepted in a row.
const MAX_ACCEPTS: usize = 16;
/// Credit that the host's side gives at first.
const HOST_CREDIT: Credit = Credit { buf_alloc: HOST_BUFFER, fwd_cnt: 0 };

/// Clients on the host that connect to a guest.
impl VsockSwitch {
    /// Replaces the socket at which programs on the host connect to a guest.
    pub(crate) fn host_listener(&mut self, id: PortId, listener: OwnedFd) -> io::Result<()> {
        let listener = ForeignFd::new(listener, &self.queue_of_clients(id));
        match self.guests.by_id(id) {
            Some(guest) => self.host.listeners.listen(guest, listener, &self.epoll),
            None => Ok(()),
        }
    }

    /// The queue of what clients send to a guest. A removed guest has a new one.
    pub(super) fn queue_of_clients(&self, id: PortId) -> ClosingQueue {
        let guest = self.guests.by_id(id).and_then(|guest| self.guests.devices[guest].as_ref());
        guest.map_or_else(|| ClosingQueue::new(id), |device| device.closing_queues.of_clients().clone())
    }

    /// Accepts the clients that wait at a guest's socket.
    pub(crate) fn accept_clients(&mut self, guest: GuestIdx, now: Instant) {
        for _ in 0..MAX_ACCEPTS {
            let Some(socket) = self.host.listeners.accept(guest, now) else { return };
            self.admit(guest, socket, now);
        }
    }

    /// Resumes or reports listening sockets that are paused, if that is due.
    pub(super) fn look_at_paused_sockets(&mut self, now: Instant) {
        for guest in self.host.listeners.look(now, &self.epoll) {
            if let Some(device) = &self.guests.devices[guest] {
                self.events.push(VsockEvent::HostSocketFull { port: device.config.id, of: None });
            }
        }
    }

    /// Admits a client that has not named its port, or disconnects it if there are too many.
    pub(super) fn admit(&mut self, guest: GuestIdx, socket: ForeignFd, now: Instant) {
        if self.host.clients.is_full(guest) {
            return self.guests.count(guest, SocketWord::Limited, 1);
        }
        if let Ok(client) = self.host.clients.add(guest, socket, &self.epoll, now) {
            self.read_client(client, EventFlags::IN, now);
        }
    }

    /// Reads the client's CONNECT line and, if it is complete, requests a connection to the guest.
    pub(crate) fn read_client(&mut self, client: u32, flags: EventFlags, now: Instant) {
        if let Some(request) = self.host.clients.read(client, flags) {
            self.connect_client(request, now);
        }
    }

    /// Disconnects the clients that have not named their port in time. They count as limited.
    pub(super) fn disconnect_late_clients(&mut self, now: Instant) {
        while let Some(guest) = self.host.clients.remove_late(now) {
            self.guests.count(guest, SocketWord::Limited, 1);
        }
    }

    pub(crate) fn connect_client(&mut self, request: ConnectRequest, now: Instant) {
        let ConnectRequest { guest, port, socket } = request;
        if self.guests.receivers[guest].ring.is_none() {
            return;
        }
        let Some(device) = &mut self.guests.devices[guest] else { return };
        let to = Address { cid: device.config.cid, port };
        // Connections that were taken over from the last fabric have ports already, and so has the
        // service of the fabric.
        let from = loop {
            let from = Address { cid: Cid::HOST, port: device.next_host_port() };
            if !is_service(from) && self.table.find(from, to).is_none() {
                break from;
            }
        };
        let ends =
            [End { address: from, party: Party::Host }, End { address: to, party: Party::Guest(guest) }];
        let Some(id) = self.open(BySide(ends), SocketType::Stream, HOST_CREDIT, now) else {
            return self.guests.count(guest, SocketWord::Limited, 1);
        };
        self.send_request(id);
        if self.host.streams.attach(id, socket, &self.epoll).is_err() {
            // The program's socket is closed, and the guest was not sent the request yet.
            self.end(id, Some(Side::Requester));
        }
    }
}

/// Programs on the host that guests connect to.
impl VsockSwitch {
    /// Asks `tautd` for the program that a guest connects to: only `tautd` can open its socket.
    pub(super) fn ask_tautd(&mut self, guest: GuestIdx, id: ConnId, to: u32) {
        let Some(device) = &mut self.guests.devices[guest] else { return };
        let (port, most) = (device.config.id, device.config.half_open as usize);
        let queue = device.closing_queues.of_program(to);
        // Another socket would only join those that wait to be closed.
        if queue.is_clogged() {
            if queue.report_full() {
                self.events.push(VsockEvent::HostSocketFull { port, of: Some(to) });
            }
            self.guests.count(guest, SocketWord::Limited, 1);
            return self.end(id, Some(Side::Responder));
        }
        // Limits the questions of a guest that requests and gives up over and over.
        if self.host.questions.count(guest) >= most {
            self.guests.count(guest, SocketWord::Limited, 1);
            return self.end(id, Some(Side::Responder));
        }
        self.grant_credit(id, Side::Responder, HOST_CREDIT);
        let request = self.host.questions.add(guest, id);
        self.host.streams.expect(id, request);
        self.events.push(VsockEvent::HostConnect { port, request, to });
    }

    /// Takes the answer to [`VsockEvent::HostConnect`]: the program's socket, or a refusal.
    pub(crate) fn host_connected(&mut self, id: PortId, request: u32, socket: Option<OwnedFd>) {
        let asked = self.host.questions.answer(request);
        let guest = self.guests.by_id(id);
        let connection = asked.and_then(|connection| self.table.get(connection));
        let device = guest.and_then(|guest| self.guests.devices[guest].as_mut());
        let queue = match (connection, device) {
            (Some(connection), Some(device)) => {
                device.closing_queues.of_program(connection.ends[Side::Responder].address.port)
            }
            // The connection is over, and with it the port is forgotten.
            (None, Some(device)) => device.closing_queues.of_others(),
            (_, None) => &ClosingQueue::new(id),
        };
        let socket = socket.map(|socket| ForeignFd::new(socket, queue));
        let (Some(connection_id), Some(connection)) = (asked, connection) else { return };
        if connection.state != State::Requested
            || connection.ends[Side::Requester].party != guest.map_or(Party::Host, Party::Guest)
        {
            return;
        }
        let mut attach = |socket| self.host.streams.attach(connection_id, socket, &self.epoll);
        if socket.is_none_or(|socket| attach(socket).is_err()) {
            if let Some(guest) = guest {
                self.guests.count(guest, SocketWord::Refused, 1);
            }
            return self.end(connection_id, Some(Side::Responder));
        }
        self.accept_for_host(connection_id);
    }

    /// Accepts a guest's request for the program whose socket has come, or for the fabric itself.
    pub(super) fn accept_for_host(&mut self, id: ConnId) {
        let Some(connection) = self.table.get_mut(id) else { return };
        let answered = connection.accept();
        connection.flows[Side::Responder].pending.response = true;
        self.carry_out_rare(id, Rare { answered, ..Rare::default() });
        self.queue(id, Side::Responder);
    }

    /// Queues the flows of a connection whose socket has become readable or writable.
    pub(crate) fn on_stream_event(&mut self, id: ConnId, flags: EventFlags) {
        let Some(stream) = self.host.streams.get_mut(id) else { return };
        let Some(connection) = self.table.get_mut(id) else { return };
        let Some(host) = connection.host_side() else { return };
        stream.on_event(flags);
        if stream.readable {
            self.sched.turns.queue(FlowId { connection: id, from: host }, connection);
        }
        if stream.writable {
            self.sched.turns.queue(FlowId { connection: id, from: host.other() }, connection);
        }
    }
}
