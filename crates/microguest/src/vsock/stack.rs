//! All connections of a machine: whose a packet is, who waits for connections, who closes.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};

use taut_virtq::socket_header::{self as packet, SocketHeader};

use super::connection::{Connection, Key};
use super::wire::Wire;

/// First of the ports of connections.
const FIRST_PORT: u32 = 49_152;
/// Connections that wait for a program to take them; more are reset.
const BACKLOG: usize = 256;
/// Answers to strangers that may wait for room; then nothing is received until there is some.
const MAX_ANSWERS: usize = 256;
/// How long a peer may take to close as well (virtio 1.2, 5.10.6.5.1).
const CLOSE_TIMEOUT: Duration = Duration::from_secs(8);

/// A connection of the stack, until the program that has it closes or aborts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ConnectionId(u64);

/// The stack.
#[derive(Debug)]
pub(super) struct Stack {
    cid: u64,
    /// Longest payload of a packet.
    most: usize,
    connections: BTreeMap<ConnectionId, Connection>,
    by_key: HashMap<Key, ConnectionId>,
    next_id: u64,
    next_port: u32,
    listeners: HashMap<u32, Listener>,
    /// Resets for packets that belong to no connection.
    answers: VecDeque<SocketHeader>,
    /// Connections without a program, and until when they may go on.
    closing: Vec<(ConnectionId, Option<Instant>)>,
    /// Connections with packets due.
    due: VecDeque<ConnectionId>,
}

#[derive(Debug)]
struct Listener {
    buffer: usize,
    waiting: VecDeque<ConnectionId>,
}

impl Stack {
    /// A stack of the machine with this context ID that sends packets of `most` bytes of payload at most.
    pub(super) fn new(cid: u64, most: usize) -> Self {
        Self {
            cid,
            most,
            connections: BTreeMap::new(),
            by_key: HashMap::new(),
            next_id: 0,
            next_port: FIRST_PORT,
            listeners: HashMap::new(),
            answers: VecDeque::new(),
            closing: Vec::new(),
            due: VecDeque::new(),
        }
    }

    /// The machine's context ID.
    pub(super) fn cid(&self) -> u64 {
        self.cid
    }

    /// The machine has another context ID from now on, and no connections any more.
    pub(super) fn restart(&mut self, cid: u64) {
        self.break_all();
        self.cid = cid;
    }

    /// Breaks every connection, as when the device loses what it knew of them.
    pub(super) fn break_all(&mut self) {
        self.answers.clear();
        self.due.clear();
        self.connections.values_mut().for_each(Connection::break_off);
    }

    /// Begins a connection with a receive buffer of `buffer` bytes.
    pub(super) fn connect(&mut self, cid: u64, port: u32, buffer: usize) -> ConnectionId {
        let key = loop {
            let key = Key { cid, port, own_port: self.next_port };
            self.next_port =
                self.next_port.checked_add(1).filter(|port| *port < u32::MAX).unwrap_or(FIRST_PORT);
            if !self.by_key.contains_key(&key) {
                break key;
            }
        };
        self.insert(Connection::connect(key, self.cid, self.most, buffer))
    }

    fn insert(&mut self, connection: Connection) -> ConnectionId {
        let id = ConnectionId(self.next_id);
        self.next_id += 1;
        self.by_key.insert(connection.key(), id);
        self.connections.insert(id, connection);
        self.due.push_back(id);
        id
    }

    /// Waits for connections to `port` from now on, each with a receive buffer of `buffer` bytes; false if somebody does already.
    pub(super) fn listen(&mut self, port: u32, buffer: usize) -> bool {
        let free = !self.listeners.contains_key(&port);
        if free {
            self.listeners.insert(port, Listener { buffer, waiting: VecDeque::new() });
        }
        free
    }

    /// The next connection to `port`.
    pub(super) fn accept(&mut self, port: u32) -> Option<ConnectionId> {
        self.listeners.get_mut(&port)?.waiting.pop_front()
    }

    /// Waits for no more connections to `port`, and resets those that nobody has taken.
    pub(super) fn ignore(&mut self, port: u32) {
        let waiting = self.listeners.remove(&port).map(|listener| listener.waiting);
        waiting.into_iter().flatten().for_each(|id| self.abort(id));
    }

    /// A connection that was neither closed nor aborted.
    pub(super) fn connection(&mut self, id: ConnectionId) -> &mut Connection {
        self.connections.get_mut(&id).expect("a program uses its own connections until it closes them")
    }

    /// Has packets due that the program's use of a connection may have caused.
    pub(super) fn used(&mut self, id: ConnectionId) {
        if self.connections.get(&id).is_some_and(Connection::has_due) && !self.due.contains(&id) {
            self.due.push_back(id);
        }
    }

    /// Closes a connection; what was sent still arrives.
    pub(super) fn close(&mut self, id: ConnectionId) {
        self.connection(id).close();
        self.used(id);
        self.closing.push((id, None));
    }

    /// Resets a connection.
    pub(super) fn abort(&mut self, id: ConnectionId) {
        self.connection(id).reset();
        self.used(id);
        self.closing.push((id, None));
    }

    /// Receives all that has arrived, and sends what is due. True if there was anything.
    pub(super) fn poll(&mut self, wire: &mut impl Wire, now: Instant) -> bool {
        self.emit(wire);
        let mut any = false;
        while self.answers.len() < MAX_ANSWERS
            && wire.receive(&mut |header, payload| self.arrived(header, payload))
        {
            any = true;
        }
        self.emit(wire);
        self.bury(now);
        any
    }

    /// When the stack wants to be polled though nothing has arrived.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.closing.iter().filter_map(|(_, until)| *until).min()
    }

    fn arrived(&mut self, header: &SocketHeader, payload: &mut super::wire::Payload<'_>) {
        if header.dst_cid != self.cid {
            return;
        }
        let key = Key { cid: header.src_cid, port: header.src_port, own_port: header.dst_port };
        // One that has ended but that its program still holds is none any more for the peer.
        let living = self.by_key.get(&key).copied().filter(|id| !self.connections[id].has_ended());
        match living {
            _ if header.kind != packet::STREAM => self.answer(header),
            Some(id) => {
                self.connection(id).arrived(header, payload);
                self.used(id);
            }
            None if header.op == packet::REQUEST => self.requested(key, header),
            None => self.answer(header),
        }
    }

    fn requested(&mut self, key: Key, request: &SocketHeader) {
        let listener = self.listeners.get(&key.own_port);
        let Some(listener) = listener.filter(|listener| listener.waiting.len() < BACKLOG) else {
            return self.answer(request);
        };
        let accepted = Connection::accept(key, self.cid, self.most, listener.buffer, request);
        let id = self.insert(accepted);
        if let Some(listener) = self.listeners.get_mut(&key.own_port) {
            listener.waiting.push_back(id);
        }
    }

    /// What belongs nowhere is answered by a reset.
    fn answer(&mut self, to: &SocketHeader) {
        if to.op != packet::RST {
            self.answers.push_back(SocketHeader {
                src_cid: self.cid,
                dst_cid: to.src_cid,
                src_port: to.dst_port,
                dst_port: to.src_port,
                kind: to.kind,
                op: packet::RST,
                ..SocketHeader::default()
            });
        }
    }

    fn emit(&mut self, wire: &mut impl Wire) {
        while let Some(answer) = self.answers.front() {
            if !wire.send(answer, &[]) {
                return;
            }
            self.answers.pop_front();
        }
        while let Some(id) = self.due.front() {
            if self.connections.get_mut(id).is_some_and(|connection| !connection.emit(wire)) {
                return;
            }
            self.due.pop_front();
        }
    }

    /// Forgets connections that no program has and that are over; those whose peer does not close are reset.
    fn bury(&mut self, now: Instant) {
        let Self { closing, connections, by_key, due, .. } = self;
        closing.retain_mut(|(id, until)| {
            let Some(connection) = connections.get_mut(id) else { return false };
            if now >= *until.get_or_insert(now + CLOSE_TIMEOUT) {
                connection.reset();
                due.push_back(*id);
                // Once more as long: the wire may be full.
                *until = Some(now + CLOSE_TIMEOUT);
            }
            let over = connection.is_over();
            if over {
                if by_key.get(&connection.key()) == Some(id) {
                    by_key.remove(&connection.key());
                }
                connections.remove(id);
            }
            !over
        });
    }
}

#[cfg(test)]
impl Stack {
    /// Connections that are not forgotten.
    pub(super) fn connection_count(&self) -> usize {
        self.connections.len()
    }
}
