//! All connections of a machine: finds the connection of a packet, and opens and closes
//! connections.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;
use taut_virtq::socket_header::{self as packet, SocketHeader};

use super::connection::{Connection, Key};
use super::wire::Wire;

/// First local port of connections.
const FIRST_PORT: u32 = 49_152;
/// Connections that may wait for a server to accept them. Further ones are reset.
const BACKLOG: usize = 256;
/// Resets that may wait for room. At this limit nothing is received until there is room.
const MAX_ANSWERS: usize = 256;
/// Time that a peer may take to close, too (virtio 1.2, 5.10.6.5.1).
const CLOSE_TIMEOUT: Duration = Duration::from_secs(8);

/// A connection of the stack, valid until its program closes or aborts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ConnectionId(u64);

/// All connections and listeners of a machine.
#[derive(Debug)]
pub(super) struct Stack {
    cid: u64,
    /// Largest payload of a packet.
    most: usize,
    /// Looked up a few times for each packet, as `by_key`. Both have a fast hash: with trees, 64
    /// connections that rest made each packet of another one later.
    connections: FxHashMap<ConnectionId, Connection>,
    by_key: FxHashMap<Key, ConnectionId>,
    next_id: u64,
    next_port: u32,
    /// By port. Looked up in each turn of the vCPU: a server asks for new connections then.
    listeners: BTreeMap<u32, Listener>,
    /// Resets for packets that belong to no connection.
    answers: VecDeque<SocketHeader>,
    /// Connections without a program, and the time at which they are reset.
    closing: Vec<(ConnectionId, Option<Instant>)>,
    /// Connections with packets due.
    due: VecDeque<ConnectionId>,
    /// Number of packets that came on connections without credit, and of times that all
    /// connections were ended at once.
    news: u64,
    /// Number of connections that are still accepted before the machine falls silent, if it will.
    until_silent: Option<u32>,
}

#[derive(Debug)]
struct Listener {
    buffer: usize,
    waiting: VecDeque<ConnectionId>,
}

impl Stack {
    /// Creates a stack for this context ID. `most` is the largest payload of a packet.
    pub(super) fn new(cid: u64, most: usize) -> Self {
        Self {
            cid,
            most,
            connections: FxHashMap::default(),
            by_key: FxHashMap::default(),
            next_id: 0,
            next_port: FIRST_PORT,
            listeners: BTreeMap::new(),
            answers: VecDeque::new(),
            closing: Vec::new(),
            due: VecDeque::new(),
            news: 0,
            until_silent: None,
        }
    }

    /// Has the machine grant all credit there is on this many connections, and then receive
    /// nothing.
    pub(super) fn silent_after(self, connections: Option<u32>) -> Self {
        Self { until_silent: connections, ..self }
    }

    /// Returns whether the machine has fallen silent: it receives nothing any more.
    pub(super) fn is_silent(&self) -> bool {
        self.until_silent == Some(0)
    }

    /// Returns the machine's context ID.
    pub(super) fn cid(&self) -> u64 {
        self.cid
    }

    /// Changes the context ID and drops all connections.
    pub(super) fn restart(&mut self, cid: u64) {
        self.break_all();
        self.cid = cid;
    }

    /// Ends every connection, as when the device has lost its state.
    pub(super) fn break_all(&mut self) {
        self.answers.clear();
        self.due.clear();
        self.news += 1;
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

    /// Accepts connections to `port`, each with a receive buffer of `buffer` bytes. Returns false
    /// if a server does so already.
    pub(super) fn listen(&mut self, port: u32, buffer: usize) -> bool {
        let free = !self.listeners.contains_key(&port);
        if free {
            self.listeners.insert(port, Listener { buffer, waiting: VecDeque::new() });
        }
        free
    }

    /// Returns the next new connection to `port`.
    pub(super) fn accept(&mut self, port: u32) -> Option<ConnectionId> {
        self.listeners.get_mut(&port)?.waiting.pop_front()
    }

    /// Accepts no more connections to `port`, and resets those that wait.
    pub(super) fn ignore(&mut self, port: u32) {
        let waiting = self.listeners.remove(&port).map(|listener| listener.waiting);
        waiting.into_iter().flatten().for_each(|id| self.abort(id));
    }

    /// Returns a connection that was neither closed nor aborted.
    pub(super) fn connection(&mut self, id: ConnectionId) -> &mut Connection {
        self.connections.get_mut(&id).expect("a program uses its own connections until it closes them")
    }

    /// Queues packets that became due when a program used a connection.
    pub(super) fn used(&mut self, id: ConnectionId) {
        if self.connections.get(&id).is_some_and(Connection::has_due) && !self.due.contains(&id) {
            self.due.push_back(id);
        }
    }

    /// Closes a connection. Bytes that were sent still arrive.
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

    /// Receives everything that has arrived, and sends what is due. Returns true if there was
    /// anything.
    pub(super) fn poll(&mut self, wire: &mut impl Wire, now: Instant) -> bool {
        self.emit(wire);
        let mut any = false;
        while self.answers.len() < MAX_ANSWERS
            && !self.is_silent()
            && wire.receive(&mut |header, payload| self.arrived(header, payload))
        {
            any = true;
        }
        self.emit(wire);
        self.bury(now);
        any
    }

    /// Returns a number that changes when a connection without credit may have got some, or has
    /// ended.
    pub(super) fn news(&self) -> u64 {
        self.news
    }

    /// Returns the time of the next timer.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.closing.iter().filter_map(|(_, until)| *until).min()
    }

    fn arrived(&mut self, header: &SocketHeader, payload: &mut super::wire::Payload<'_>) {
        if header.dst_cid != self.cid {
            return;
        }
        let key = Key { cid: header.src_cid, port: header.src_port, own_port: header.dst_port };
        // For the peer, an ended connection that its program still holds does not exist.
        let living = self.by_key.get(&key).copied().filter(|id| !self.connections[id].has_ended());
        match living {
            _ if header.kind != packet::STREAM => self.answer(header),
            Some(id) => {
                let connection = self.connection(id);
                let had_no_credit = connection.credit() == 0;
                connection.arrived(header, payload);
                self.news += u64::from(had_no_credit);
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
        let mut accepted = Connection::accept(key, self.cid, self.most, listener.buffer, request);
        if let Some(left) = &mut self.until_silent {
            accepted.announce(u32::MAX);
            *left -= 1;
        }
        let id = self.insert(accepted);
        if let Some(listener) = self.listeners.get_mut(&key.own_port) {
            listener.waiting.push_back(id);
        }
    }

    /// Answers a packet that belongs to no connection by a reset.
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

    /// Forgets connections without a program that are over. Resets those whose peer does not close.
    fn bury(&mut self, now: Instant) {
        let Self { closing, connections, by_key, due, .. } = self;
        closing.retain_mut(|(id, until)| {
            let Some(connection) = connections.get_mut(id) else { return false };
            if now >= *until.get_or_insert(now + CLOSE_TIMEOUT) {
                connection.reset();
                due.push_back(*id);
                // Try again later if the wire is full.
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
    /// Returns the number of connections that are not forgotten.
    pub(super) fn connection_count(&self) -> usize {
        self.connections.len()
    }
}
