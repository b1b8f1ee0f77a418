//! All connections, found by their number or by the addresses of their ends, and written down for the next fabric.
//!
//! A connection's words in the counters file ([`taut_api::fabric::counters::CONNECTIONS`]): that it is there and between
//! whom, from its first moment on, so that a fabric that comes after a killed one can tell both ends; everything else when
//! this fabric stops in an orderly way. Connection 0 is never used: its words say how the last fabric ended, and how far the
//! used part goes.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use taut_api::fabric::counters::{CONNECTION_WORDS, CONNECTIONS, MAX_CONNECTIONS};
use taut_api::vmci::Cid;
use taut_virtq::counters::SharedWords;
use taut_virtq::socket_header::{SEQPACKET, STREAM};

use super::connection::{Connection, Credit, End, Flow, Owed, Party, Side, State};

/// In the first word of connection 0: the last fabric wrote down everything.
const ORDERLY: u64 = u64::from_le_bytes(*b"orderly\0");

/// In which word of connection 0 the highest number is that was ever used.
const HIGHEST: usize = 1;

const USED: u64 = 1;
const RECORDS: u64 = 1 << 1;
const OPEN: u64 = 1 << 2;
const OVER: u64 = 1 << 3;
/// First of the 16 bits of each flow.
const FLOWS: [u32; 2] = [16, 32];

/// An address.
type Address = (Cid, u32);

/// Both ends' addresses, the smaller first: the same for packets of both directions.
type Pair = (Address, Address);

fn pair(a: Address, b: Address) -> Pair {
    if a <= b { (a, b) } else { (b, a) }
}

/// What is written down of one connection.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) number: u32,
    pub(super) ends: [Address; 2],
    pub(super) kind: u16,
    pub(super) state: State,
    pub(super) flows: [Flow; 2],
}

#[derive(Debug)]
pub(super) struct Table {
    words: Arc<SharedWords>,
    connections: Vec<Option<Box<Connection>>>,
    numbers: HashMap<Pair, u32>,
    free: Vec<u32>,
}

impl Table {
    /// No connection; what is written down stays until [`Self::take_written`].
    pub(super) fn new(words: &Arc<SharedWords>) -> Self {
        Self { words: Arc::clone(words), connections: vec![None], numbers: HashMap::new(), free: Vec::new() }
    }

    fn slot(&self, number: u32) -> &[AtomicU64] {
        let first = CONNECTIONS + number as usize * CONNECTION_WORDS;
        &self.words.words()[first..first + CONNECTION_WORDS]
    }

    pub(super) fn get(&mut self, number: u32) -> Option<&mut Connection> {
        self.connections.get_mut(number as usize)?.as_deref_mut()
    }

    /// The connection between two addresses, and the side at which `from` is.
    pub(super) fn find(&self, from: Address, to: Address) -> Option<(u32, Side)> {
        let &number = self.numbers.get(&pair(from, to))?;
        let connection = self.connections[number as usize].as_ref()?;
        let asked = (connection.ends[0].cid, connection.ends[0].port);
        Some((number, usize::from(asked != from)))
    }

    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> + use<> {
        let there: Vec<_> = (0..)
            .zip(&self.connections)
            .filter(|(_, there)| there.is_some())
            .map(|(number, _)| number)
            .collect();
        there.into_iter()
    }

    /// Adds a connection, under this number or any that is free. None: there are too many, or one between the same
    /// addresses.
    pub(super) fn add(&mut self, connection: Connection, number: Option<u32>) -> Option<u32> {
        let address = |end: End| (end.cid, end.port);
        let key = pair(address(connection.ends[0]), address(connection.ends[1]));
        if self.numbers.contains_key(&key) {
            return None;
        }
        let number = match number {
            Some(number) => number,
            None => match self.free.pop() {
                Some(number) => number,
                None if self.connections.len() < MAX_CONNECTIONS => self.connections.len() as u32,
                None => return None,
            },
        };
        while self.connections.len() <= number as usize {
            // Those in between are free, or taken up later by their numbers.
            self.connections.push(None);
        }
        let slot = self.slot(number);
        for (word, end) in slot[1..].iter().zip(connection.ends) {
            word.store(u64::from(end.cid.0) << 32 | u64::from(end.port), Relaxed);
        }
        slot[0].store(summary(&connection), Relaxed);
        self.slot(0)[HIGHEST].fetch_max(number.into(), Relaxed);
        self.numbers.insert(key, number);
        self.connections[number as usize] = Some(Box::new(connection));
        Some(number)
    }

    /// Forgets a connection.
    pub(super) fn remove(&mut self, number: u32) -> Option<Box<Connection>> {
        let connection = self.connections.get_mut(number as usize)?.take()?;
        let address = |end: End| (end.cid, end.port);
        self.numbers.remove(&pair(address(connection.ends[0]), address(connection.ends[1])));
        self.slot(number)[0].store(0, Relaxed);
        self.free.push(number);
        Some(connection)
    }

    /// Writes everything down: the next fabric can go on.
    pub(super) fn write_down(&mut self) {
        for (number, connection) in (0..).zip(&self.connections) {
            let Some(connection) = connection else { continue };
            let slot = self.slot(number);
            slot[0].store(summary(connection), Relaxed);
            for (words, flow) in slot[3..].chunks(2).zip(&connection.flows) {
                words[0].store(u64::from(flow.sent) << 32 | u64::from(flow.offset), Relaxed);
                words[1].store(u64::from(flow.credit.alloc) << 32 | u64::from(flow.credit.taken), Relaxed);
            }
        }
        self.slot(0)[0].store(ORDERLY, Relaxed);
    }

    /// What the last fabric left, and whether it had written everything down; from now on this one writes. The words of other
    /// numbers are free.
    pub(super) fn take_written(&mut self) -> (bool, Vec<Written>) {
        let orderly = self.slot(0)[0].swap(0, Relaxed) == ORDERLY;
        let highest = self.slot(0)[HIGHEST].swap(0, Relaxed).min(MAX_CONNECTIONS as u64 - 1);
        let written: Vec<_> = (1..=highest as u32).filter_map(|number| self.written(number)).collect();
        for written in &written {
            self.slot(written.number)[0].store(0, Relaxed);
        }
        (orderly, written)
    }

    /// After connections were added by number: all numbers below the last that are not taken are free.
    pub(super) fn collect_free(&mut self) {
        self.free = (1..self.connections.len() as u32)
            .filter(|&number| self.connections[number as usize].is_none())
            .collect();
    }

    fn written(&self, number: u32) -> Option<Written> {
        let slot = self.slot(number);
        let load = |at: usize| slot[at].load(Relaxed);
        let summary = load(0);
        if summary & USED == 0 {
            return None;
        }
        let halves = |word: u64| ((word >> 32) as u32, word as u32);
        let address = |at| {
            let (cid, port) = halves(load(at));
            (Cid(cid), port)
        };
        let flow = |side: usize| {
            let (sent, offset) = halves(load(3 + 2 * side));
            let (alloc, taken) = halves(load(4 + 2 * side));
            let flow = flow_of(summary >> FLOWS[side]);
            let over = flow.over && summary & OVER != 0;
            Flow { sent, offset, credit: Credit { alloc, taken }, over, ..flow }
        };
        Some(Written {
            number,
            ends: [address(1), address(2)],
            kind: if summary & RECORDS == 0 { STREAM } else { SEQPACKET },
            state: match summary {
                summary if summary & OVER != 0 => State::Over,
                summary if summary & OPEN != 0 => State::Open,
                _ => State::Requested,
            },
            flows: [flow(0), flow(1)],
        })
    }
}

impl Written {
    /// The connection, at ends that are there.
    pub(super) fn into_connection(self, parties: [Party; 2]) -> Connection {
        let [a, b] = self.ends;
        let end = |(cid, port), party| End { cid, port, party };
        Connection {
            ends: [end(a, parties[0]), end(b, parties[1])],
            kind: self.kind,
            state: self.state,
            since: Instant::now(),
            flows: self.flows,
        }
    }
}

fn summary(connection: &Connection) -> u64 {
    let state = match connection.state {
        State::Requested => 0,
        State::Open => OPEN,
        State::Over => OVER,
    };
    let kind = if connection.kind == SEQPACKET { RECORDS } else { 0 };
    let flows = connection.flows.iter().zip(FLOWS).map(|(flow, shift)| flow_bits(flow) << shift);
    USED | kind | state | flows.sum::<u64>()
}

fn flow_bits(flow: &Flow) -> u64 {
    let Owed { request, response, update, ask, shutdown, reset } = flow.owed;
    let flags = [request, response, update || flow.update_later, ask, reset, flow.ended, flow.over];
    let bits = flags.into_iter().zip(0..).map(|(flag, bit)| u64::from(flag) << bit).sum::<u64>();
    bits | u64::from(shutdown & 3) << 8
}

fn flow_of(bits: u64) -> Flow {
    let bit = |number: u32| bits >> number & 1 != 0;
    Flow {
        owed: Owed {
            request: bit(0),
            response: bit(1),
            update: bit(2),
            ask: bit(3),
            reset: bit(4),
            shutdown: (bits >> 8 & 3) as u32,
        },
        ended: bit(5),
        over: bit(6),
        ..Flow::default()
    }
}
