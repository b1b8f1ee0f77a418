//! The host's end of connections: Unix sockets, by the convention that Firecracker's and Cloud Hypervisor's users know.
//!
//! A client on the host connects to the VM's socket, says `CONNECT <port>\n`, and is answered `OK <port>\n` once the guest has
//! accepted, or disconnected. What a guest connects to is opened by `tautd`, which is asked for it. Nothing is buffered here: a
//! guest's bytes leave its ring when the socket takes them, a client's bytes leave the socket when the guest has a buffer and
//! credit for them.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, SocketFlags, accept_with, recv, send, shutdown};
use taut_api::fabric::PortId;
use taut_api::fabric::counters::SocketWord;
use taut_api::vmci::Cid;
use taut_virtq::fault::RingFault;
use taut_virtq::socket_header::{SHUTDOWN_RCV, SHUTDOWN_SEND, STREAM, SocketHeader};

use super::connection::{Credit, End, Party, State, Turn};
use super::deliver::Served;
use super::guest::FIRST_HOST_PORT;
use super::hub::Hub;
use super::{News, token};
use crate::sys::epoll::{EventFlags, Watched, set_nonblocking};

/// Room that a guest is told of: what may wait in its ring for a program of the host's.
pub(super) const BUFFER: u32 = 256 << 10;
/// Bytes read from a socket at a time, at most.
const READ: usize = 64 << 10;
/// Longest `CONNECT <port>\n`.
const LINE: usize = 32;
/// Clients of one guest that have not said where they want to go.
const CLIENTS: usize = 64;
/// Connections accepted in a row.
const ACCEPTS: usize = 16;

/// One connection's socket.
#[derive(Debug, Default)]
struct Stream {
    /// None: `tautd` has been asked for it.
    socket: Option<Watched<OwnedFd>>,
    readable: bool,
    writable: bool,
    /// Bytes written that the guest has been told of.
    told: u32,
    /// What `tautd` has been asked for it.
    request: Option<u32>,
}

/// What `tautd` has been asked and has not answered.
#[derive(Debug)]
struct Question {
    guest: usize,
    /// Who waits for the answer; nobody once the guest has given up.
    connection: Option<u32>,
}

/// A client that has not said where it wants to go.
#[derive(Debug)]
struct Client {
    guest: usize,
    socket: Watched<OwnedFd>,
}

/// All sockets of the host's.
#[derive(Debug, Default)]
pub(super) struct Hosts {
    /// Flows that have something for the host.
    pub(super) turns: VecDeque<Turn>,
    streams: HashMap<u32, Stream>,
    clients: HashMap<u32, Client>,
    listeners: HashMap<usize, Watched<OwnedFd>>,
    /// By their numbers.
    requests: HashMap<u32, Question>,
    next: u32,
    buffer: Vec<u8>,
}

impl Hosts {
    fn number(&mut self) -> u32 {
        self.next = self.next.wrapping_add(1);
        self.next
    }

    /// Is there a socket for this connection, or has `tautd` been asked for one?
    pub(super) fn has(&self, number: u32) -> bool {
        self.streams.contains_key(&number)
    }

    /// The connections that have a socket, or will have one.
    #[cfg(any(test, feature = "rig"))]
    pub(super) fn numbers(&self) -> Vec<u32> {
        let waiting = self.requests.values().filter_map(|question| question.connection);
        self.streams.keys().copied().chain(waiting).collect()
    }

    /// A connection is no more.
    pub(super) fn close(&mut self, number: u32) {
        let request = self.streams.remove(&number).and_then(|stream| stream.request);
        // The answer that is still to come is not for the connection that has this number next.
        if let Some(question) = request.and_then(|request| self.requests.get_mut(&request)) {
            question.connection = None;
        }
    }

    /// A device is no more.
    pub(super) fn forget(&mut self, guest: usize) {
        self.listeners.remove(&guest);
        self.clients.retain(|_, client| client.guest != guest);
        self.requests.retain(|_, question| question.guest != guest);
    }

    /// Duplicates of all connections' sockets, by their numbers.
    pub(super) fn streams(&self) -> Vec<(u32, OwnedFd)> {
        let sockets =
            self.streams.iter().filter_map(|(&number, stream)| Some((number, stream.socket.as_ref()?)));
        sockets.filter_map(|(number, socket)| Some((number, socket.try_clone().ok()?))).collect()
    }

    /// Duplicates of the sockets of clients that have said nothing, and whose guests they are for.
    pub(super) fn clients(&self) -> Vec<(usize, OwnedFd)> {
        let clients = self.clients.values();
        clients.filter_map(|client| Some((client.guest, client.socket.try_clone().ok()?))).collect()
    }
}

const BOTH_WAYS: EventFlags =
    EventFlags::IN.union(EventFlags::OUT).union(EventFlags::RDHUP).union(EventFlags::ET);

impl Hub {
    /// Where programs of the host's connect to a guest.
    pub(super) fn host_listener(&mut self, id: PortId, listener: OwnedFd) -> io::Result<()> {
        let Some(guest) = self.guest(id) else { return Ok(()) };
        set_nonblocking(&listener)?;
        self.hosts.listeners.remove(&guest);
        let watched = self.events.watch(listener, token::LISTENER | guest as u64, EventFlags::IN)?;
        self.hosts.listeners.insert(guest, watched);
        Ok(())
    }

    /// Somebody waits at a guest's socket.
    pub(super) fn accept_clients(&mut self, guest: usize, now: Instant) {
        for _ in 0..ACCEPTS {
            let Some(listener) = self.hosts.listeners.get(&guest) else { return };
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let Ok(socket) = accept_with(&**listener, flags) else { return };
            self.admit(guest, socket, now);
        }
    }

    /// A client that has said nothing that was read. With too many of them it is disconnected.
    pub(super) fn admit(&mut self, guest: usize, socket: OwnedFd, now: Instant) {
        let waiting = self.hosts.clients.values().filter(|client| client.guest == guest).count();
        if waiting >= CLIENTS {
            return self.count(guest, SocketWord::Limited, 1);
        }
        let number = self.hosts.number();
        let flags = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
        if let Ok(socket) = self.events.watch(socket, token::CLIENT | u64::from(number), flags) {
            self.hosts.clients.insert(number, Client { guest, socket });
            self.hear(number, EventFlags::IN, now);
        }
    }

    /// A client may have said where it wants to go.
    pub(super) fn hear(&mut self, number: u32, flags: EventFlags, now: Instant) {
        let Some(client) = self.hosts.clients.get(&number) else { return };
        let mut line = [0; LINE];
        let got = match recv(&*client.socket, &mut line, RecvFlags::PEEK) {
            Ok((_, got)) => got,
            Err(Errno::AGAIN | Errno::INTR) => return,
            Err(_) => 0,
        };
        let end = line[..got].iter().position(|&byte| byte == b'\n');
        let says_no_more = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
        if end.is_none() && got > 0 && got < LINE && !says_no_more {
            return;
        }
        let Some(Client { guest, socket }) = self.hosts.clients.remove(&number) else { return };
        // Whoever says something else, or nothing, is disconnected.
        let Some(end) = end else { return };
        let Some(port) = wanted_port(&line[..end]) else { return };
        // What follows the line stays in the socket: it is for the guest.
        if !matches!(recv(&*socket, &mut line[..=end], RecvFlags::empty()), Ok((_, got)) if got == end + 1) {
            return;
        }
        let Ok(socket) = socket.try_clone() else { return };
        self.connect_client(guest, port, socket, now);
    }

    fn connect_client(&mut self, guest: usize, port: u32, socket: OwnedFd, now: Instant) {
        if self.receivers[guest].ring.is_none() {
            return;
        }
        let Some(known) = &mut self.guests[guest] else { return };
        let mut next = || {
            let own = known.next_port;
            known.next_port = if own >= 2 * FIRST_HOST_PORT - 1 { FIRST_HOST_PORT } else { own + 1 };
            own
        };
        let mut own = next();
        // Clients of the fabric before this one have theirs.
        while self.table.find((Cid::HOST, own), (known.config.cid, port)).is_some() {
            own = next();
        }
        let ends = [
            End { cid: Cid::HOST, port: own, party: Party::Host },
            End { cid: known.config.cid, port, party: Party::Guest(guest) },
        ];
        let Some(number) = self.open(ends, STREAM, now) else {
            return self.count(guest, SocketWord::Limited, 1);
        };
        if self.attach_stream(number, socket).is_err() {
            return self.reset(number, None);
        }
        let Some(connection) = self.table.get(number) else { return };
        connection.flows[1].credit = Credit { alloc: BUFFER, taken: 0 };
        connection.flows[0].owed.request = true;
        self.has_turn(Turn { connection: number, from: 0 });
    }

    /// A connection's socket is here.
    pub(super) fn attach_stream(&mut self, number: u32, socket: OwnedFd) -> io::Result<()> {
        set_nonblocking(&socket)?;
        let socket = self.events.watch(socket, token::STREAM | u64::from(number), BOTH_WAYS)?;
        let told = self.hosts.streams.get(&number).map_or(0, |stream| stream.told);
        let stream = Stream { socket: Some(socket), readable: true, writable: true, told, request: None };
        self.hosts.streams.insert(number, stream);
        Ok(())
    }

    /// A guest wants to connect to the host: only `tautd` can.
    pub(super) fn ask_host(&mut self, guest: usize, number: u32, to: u32) {
        let Some(config) = self.guests[guest].as_ref().map(|guest| &guest.config) else { return };
        let (port, most) = (config.id, config.half_open as usize);
        // One that asks and gives up, over and over, is not to keep `tautd` busy.
        if self.hosts.requests.values().filter(|question| question.guest == guest).count() >= most {
            self.count(guest, SocketWord::Limited, 1);
            return self.reset(number, Some(1));
        }
        if let Some(connection) = self.table.get(number) {
            connection.flows[0].credit = Credit { alloc: BUFFER, taken: 0 };
        }
        let request = self.hosts.number();
        self.hosts.streams.insert(number, Stream { request: Some(request), ..Stream::default() });
        self.hosts.requests.insert(request, Question { guest, connection: Some(number) });
        self.news.push(News::HostConnect { port, request, to });
    }

    /// The answer.
    pub(super) fn host_connected(&mut self, id: PortId, request: u32, socket: Option<OwnedFd>) {
        let question = self.hosts.requests.remove(&request);
        let Some(number) = question.and_then(|question| question.connection) else { return };
        let Some(connection) = self.table.get(number) else { return };
        let known = self.by_id.get(&id).copied();
        if connection.state != State::Requested
            || connection.ends[0].party != known.map_or(Party::Host, Party::Guest)
        {
            return;
        }
        let attached = socket.is_some_and(|socket| self.attach_stream(number, socket).is_ok());
        if !attached {
            if let Some(guest) = known {
                self.count(guest, SocketWord::Refused, 1);
            }
            return self.reset(number, Some(1));
        }
        self.accepted(number);
        if let Some(connection) = self.table.get(number) {
            connection.flows[1].owed.response = true;
        }
        self.has_turn(Turn { connection: number, from: 1 });
    }

    /// A connection's socket has become readable or writable.
    pub(super) fn stream_ready(&mut self, number: u32, flags: EventFlags) {
        let Some(stream) = self.hosts.streams.get_mut(&number) else { return };
        let Some(connection) = self.table.get(number) else { return };
        let Some(host) = connection.host_side() else { return };
        let broken = flags.intersects(EventFlags::ERR | EventFlags::HUP);
        stream.readable |= broken || flags.intersects(EventFlags::IN | EventFlags::RDHUP);
        stream.writable |= broken || flags.intersects(EventFlags::OUT);
        let (reads, writes) = (stream.readable, stream.writable);
        if reads {
            self.has_turn(Turn { connection: number, from: host });
        }
        if writes {
            self.has_turn(Turn { connection: number, from: 1 - host });
        }
    }

    /// Serves the flows towards the host, a turn each.
    pub(super) fn serve_hosts(&mut self, _now: Instant) -> bool {
        let turns = self.hosts.turns.len();
        for _ in 0..turns {
            let Some(turn) = self.hosts.turns.pop_front() else { break };
            if let Some(connection) = self.table.get(turn.connection) {
                connection.flows[turn.from].queued = false;
                self.serve_host(turn);
            }
        }
        turns > 0
    }

    fn serve_host(&mut self, turn: Turn) {
        let Turn { connection: number, from } = turn;
        let host = 1 - from;
        let Some(connection) = self.table.get(number) else { return };
        let own_port = connection.ends[host].port;
        let Party::Guest(guest) = connection.ends[from].party else { return };
        let flow = &mut connection.flows[from];
        if flow.over {
            return;
        }
        let Some(stream) = self.hosts.streams.get_mut(&number) else { return };
        let Some(socket) = &stream.socket else {
            // `tautd` has not answered yet. Whoever gives up meanwhile need not be told.
            if flow.owed.reset {
                flow.over = true;
                self.free_if_over(number);
            }
            return;
        };
        let answers = std::mem::take(&mut flow.owed.response);
        if answers {
            let line = format!("OK {own_port}\n");
            // A socket that nobody has written to takes a line; one that does not is broken.
            if send(&**socket, line.as_bytes(), SendFlags::NOSIGNAL) != Ok(line.len()) {
                return self.reset(number, Some(host));
            }
        }
        let mut written = 0;
        let sender = &mut self.senders[guest];
        while stream.writable
            && let Some(ring) = &mut sender.ring
            && let Some(head) = flow.packets.first()
        {
            let packet = sender.places.get(head);
            let left = packet.len - flow.offset;
            if left > 0 {
                match ring.queue.write_to(head, flow.offset, socket.as_fd()) {
                    Ok(taken) if taken > 0 => {
                        flow.offset += taken as u32;
                        flow.handed_over(taken as u32);
                        flow.credit.taken = flow.sent;
                        written += taken as u64;
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => stream.writable = false,
                    Ok(_) | Err(_) => return self.reset(number, Some(host)),
                }
            }
            if flow.offset == packet.len {
                flow.offset = 0;
                flow.packets.pop(&sender.places);
                ring.queue.give_back(head);
                sender.taken = sender.taken.saturating_sub(1);
            }
            if written >= READ as u64 {
                break;
            }
        }
        // What waits in a ring that has stopped has another turn when it is back.
        let more = stream.writable && sender.ring.is_some() && !flow.packets.is_empty();
        let told = stream.told;
        let asked = std::mem::take(&mut flow.owed.ask);
        flow.owed.update = false;
        flow.unread = 0;
        let sent = flow.sent;
        if written > 0 {
            self.touch_sender(guest);
        }
        if more {
            self.has_turn(turn);
        }
        if answers {
            self.has_turn(Turn { connection: number, from: host });
        }
        if asked || sent.wrapping_sub(told) >= BUFFER / 4 {
            stream_told(&mut self.hosts.streams, number, sent);
            if let Some(connection) = self.table.get(number) {
                connection.flows[host].owed.update = true;
            }
            self.has_turn(Turn { connection: number, from: host });
        }
        self.end_of_guests(turn);
    }

    /// What a guest has said that it will no longer do, once all that it sent is written.
    fn end_of_guests(&mut self, turn: Turn) {
        let Turn { connection: number, from } = turn;
        let Some(connection) = self.table.get(number) else { return };
        let flow = &mut connection.flows[from];
        if !flow.packets.is_empty() {
            if flow.owed.reset && !self.hosts.streams.get(&number).is_some_and(|stream| stream.writable) {
                // Nobody reads what is left, and nobody is left to wait.
                flow.over = true;
                self.discard(number, from);
                self.free_if_over(number);
            }
            return;
        }
        if flow.owed.reset {
            flow.over = true;
            return self.free_if_over(number);
        }
        let said = std::mem::take(&mut flow.owed.shutdown);
        if said == 0 {
            return;
        }
        if let Some(socket) = self.hosts.streams.get(&number).and_then(|stream| stream.socket.as_ref()) {
            // A socket that has gone meanwhile shows it when it is read.
            if said & SHUTDOWN_SEND != 0 {
                let _ = shutdown(&**socket, Shutdown::Write);
            }
            if said & SHUTDOWN_RCV != 0 {
                let _ = shutdown(&**socket, Shutdown::Read);
            }
        }
        let Some(connection) = self.table.get(number) else { return };
        let host_ended = connection.flows[1 - from].ended;
        if said == SHUTDOWN_RCV | SHUTDOWN_SEND || said & SHUTDOWN_SEND != 0 && host_ended {
            // Answered as a guest would.
            self.reset(number, Some(1 - from));
        }
    }

    /// A turn of what the host sends a guest: reads as much as the guest has room for, and hands it over.
    pub(super) fn read_from_host(
        &mut self,
        number: u32,
        guest: usize,
        header: SocketHeader,
    ) -> Result<Served, RingFault> {
        let Some(connection) = self.table.get(number) else { return Ok(Served::Idle) };
        let Some(host) = connection.host_side() else { return Ok(Served::Idle) };
        let guest_ended = connection.flows[1 - host].ended && connection.flows[1 - host].packets.is_empty();
        let (open, flow) = (connection.state == State::Open, &mut connection.flows[host]);
        let Some(stream) = self.hosts.streams.get_mut(&number) else { return Ok(Served::Idle) };
        let Some(socket) = stream.socket.as_ref().filter(|_| open && stream.readable && !flow.ended) else {
            return Ok(Served::Idle);
        };
        let Some(ring) = &mut self.receivers[guest].ring else { return Ok(Served::Full) };
        let Some(buffer) = ring.queue.room()? else { return Ok(Served::Full) };
        let most = (buffer.min(flow.room()) as usize).min(READ);
        if most == 0 {
            return Ok(Served::Idle);
        }
        let mut bytes = std::mem::take(&mut self.hosts.buffer);
        bytes.resize(READ, 0);
        let read = recv(&**socket, &mut bytes[..most], RecvFlags::empty()).map(|(_, got)| got);
        let served = match read {
            Ok(0) => {
                flow.ended = true;
                if guest_ended {
                    self.reset(number, Some(host));
                } else {
                    flow.owed.shutdown |= SHUTDOWN_SEND;
                }
                Ok(Served::More)
            }
            Ok(got) => {
                flow.handed_over(got as u32);
                self.store_bytes(guest, header, &bytes[..got]).map(|_| Served::More)
            }
            Err(Errno::INTR) => Ok(Served::More),
            Err(Errno::AGAIN) => {
                stream.readable = false;
                Ok(Served::Idle)
            }
            Err(_) => {
                self.reset(number, Some(host));
                Ok(Served::More)
            }
        };
        self.hosts.buffer = bytes;
        served
    }
}

fn stream_told(streams: &mut HashMap<u32, Stream>, number: u32, told: u32) {
    if let Some(stream) = streams.get_mut(&number) {
        stream.told = told;
    }
}

/// The port in `CONNECT <port>`.
fn wanted_port(line: &[u8]) -> Option<u32> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let digits = std::str::from_utf8(line).ok()?.strip_prefix("CONNECT ")?.trim();
    if digits.starts_with('+') { None } else { digits.parse().ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_convention_is_understood() {
        assert_eq!(wanted_port(b"CONNECT 1024"), Some(1024));
        assert_eq!(wanted_port(b"CONNECT 4294967295\r"), Some(u32::MAX));
        for strange in [
            &b"CONNECT"[..],
            b"CONNECT ",
            b"connect 5",
            b"CONNECT 4294967296",
            b"CONNECT -1",
            b"CONNECT +1",
            b"\xff",
        ] {
            assert_eq!(wanted_port(strange), None, "{strange:?}");
        }
    }
}
