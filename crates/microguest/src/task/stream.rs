//! The client of bulk transfer.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use taut_bench::agent::protocol::{Stream, Throughput};
use taut_bench::wire::Opening;
use taut_bench::wire::pattern;

use super::{CONNECT_TIMEOUT, DRAIN_TIMEOUT, Next, Report, Task, buffer_size, connection_failed};
use crate::machine::{Connection, Machine, Socket};

/// Messages and bytes after which the next session has its turn.
const TURN_MESSAGES: usize = 32;
const TURN_BYTES: usize = 64 << 10;

/// A session that has made no progress for this long rests.
const STALLED: Duration = Duration::from_millis(100);
/// Least time between two looks at the sessions that rest. They must not cost the others much: a
/// guest's kernel wakes a program when there is room, and does not ask each socket in turn.
const REST: Duration = Duration::from_millis(10);

/// One or more connections that send concurrently.
pub(crate) struct StreamTask {
    wanted: Stream,
    report: Report<Throughput>,
    sessions: Vec<Session>,
    /// Indices of the sessions that are polled, in this order. It rotates, so that each gets its
    /// share if there is little room.
    active: VecDeque<usize>,
    /// Indices of the sessions that rest.
    resting: Vec<usize>,
    /// Every session that rests had no credit when it began to rest.
    wait_for_credit: bool,
    /// The earliest time at which the sessions that rest are polled again.
    next_look: Option<Instant>,
    /// The value of [`Machine::news`] when the sessions that rest were last made active.
    news: u64,
    /// Deadline of what is being waited for.
    patience: Option<Instant>,
    /// Begin and end of sending.
    run: Option<(Instant, Instant)>,
}

struct Session {
    connection: Connection,
    /// Bytes of the current message that the socket has not accepted yet.
    unsent: usize,
    /// Bytes that the socket has accepted.
    sent: u64,
    closed: bool,
    confirmation: [u8; 8],
    confirmed: usize,
    /// When it last made progress.
    moved: Instant,
}

impl Session {
    fn is_done(&self) -> bool {
        self.confirmed == self.confirmation.len()
    }

    /// Sends, or reads the confirmation. Returns true if it made progress.
    fn poll(&mut self, socket: &mut Socket<'_>, wanted: &Stream, over: bool) -> bool {
        // Each session sends at least once, however late its turn comes on a loaded machine.
        if over && self.sent > 0 {
            let first = !self.closed && socket.may_end();
            if first {
                socket.end();
                self.closed = true;
            }
            let read = socket.receive(&mut self.confirmation[self.confirmed..]);
            self.confirmed += read;
            return first || read > 0;
        }
        let (mut messages, mut bytes) = (0, 0);
        while messages < TURN_MESSAGES && bytes < TURN_BYTES && socket.can_send() {
            if self.unsent == 0 {
                self.unsent = wanted.send_size as usize;
            }
            let sent = if wanted.check {
                socket.send(pattern::bytes(self.sent, self.unsent))
            } else {
                socket.send_any(self.unsent)
            };
            self.unsent -= sent;
            self.sent += sent as u64;
            bytes += sent;
            messages += 1;
        }
        bytes > 0
    }
}

impl StreamTask {
    pub(crate) fn new(wanted: Stream, report: Report<Throughput>) -> Self {
        Self {
            wanted,
            report,
            sessions: vec![],
            active: VecDeque::new(),
            resting: vec![],
            wait_for_credit: true,
            next_look: None,
            news: 0,
            patience: None,
            run: None,
        }
    }

    fn fail(&mut self, machine: &mut Machine, how: &str) -> Next {
        self.stop(machine);
        self.report.end(Err(connection_failed(&self.wanted.to, self.wanted.port, how)))
    }

    /// Connects one session after the other, then begins to send.
    fn connect(&mut self, machine: &mut Machine, now: Instant) -> Next {
        if let Some(newest) = self.sessions.last() {
            let mut socket = machine.socket(newest.connection);
            let opening =
                Opening::Stream { receive: self.wanted.receive_size, check: self.wanted.check }.encode();
            // These are the first bytes: there is room for all of them or for none.
            if !socket.may_send() || socket.send(&opening) == 0 {
                return match self.patience {
                    _ if !socket.is_open() => self.fail(machine, "was refused"),
                    Some(until) if now < until => Next::At(until),
                    _ => self.fail(machine, "timed out"),
                };
            }
        }
        if self.sessions.len() == self.wanted.sessions as usize {
            self.report.started();
            let begun = Instant::now();
            let until = begun + Duration::from_millis(self.wanted.duration_ms);
            self.run = Some((begun, until));
            self.active = (0..self.sessions.len()).collect();
            self.sessions.iter_mut().for_each(|session| session.moved = begun);
            self.patience = Some(until + DRAIN_TIMEOUT);
            return Next::Again;
        }
        let Stream { to, port, socket_size, .. } = &self.wanted;
        let connection = match machine.connect(to, *port, buffer_size(*socket_size)) {
            Ok(connection) => connection,
            Err(error) => {
                self.stop(machine);
                return self.report.end(Err(error));
            }
        };
        self.sessions.push(Session {
            connection,
            unsent: 0,
            sent: 0,
            closed: false,
            confirmation: [0; 8],
            confirmed: 0,
            moved: now,
        });
        self.patience = Some(now + CONNECT_TIMEOUT);
        Next::Again
    }

    /// Returns whether a session that rests may be able to go on. If all of them wait for credit,
    /// none can before the machine's news change. The news are those of all connections, so they
    /// may be about another one.
    fn may_go_on(&self, machine: &Machine, over: bool) -> bool {
        over || !self.wait_for_credit || machine.news() != self.news
    }

    /// Waits for the next look at the sessions that rest, and until `end` at most.
    fn rest(&self, machine: &Machine, over: bool, end: Instant) -> Next {
        let look = self.next_look.filter(|_| self.may_go_on(machine, over));
        Next::At(look.map_or(end, |look| look.min(end)))
    }

    fn finish(&mut self, machine: &mut Machine, begun: Instant) -> Next {
        let elapsed_us = begun.elapsed().as_micros() as u64;
        let confirmed =
            |session: &Session| self.wanted.confirmed(session.sent, u64::from_be_bytes(session.confirmation));
        let sessions = self.sessions.iter().map(confirmed).collect::<Result<Vec<_>, _>>();
        for session in self.sessions.drain(..) {
            machine.close(session.connection);
        }
        self.report.end(sessions.map(|sessions| {
            // Saturating, because servers may claim any number.
            let bytes = sessions.iter().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
            Throughput { bytes, elapsed_us, sessions }
        }))
    }
}

impl Task for StreamTask {
    fn poll(&mut self, machine: &mut Machine, now: Instant) -> Next {
        let Some((begun, until)) = self.run else { return self.connect(machine, now) };
        let over = now >= until;
        if self.may_go_on(machine, over) && self.next_look.is_some_and(|at| now >= at) {
            (self.next_look, self.wait_for_credit, self.news) = (None, true, machine.news());
            // In front: behind the others they might never find room.
            for index in self.resting.drain(..).rev() {
                self.active.push_front(index);
            }
        }
        if self.active.is_empty() && !self.resting.is_empty() && !over {
            // Return early: the rest would delay each request of other tasks by 0.1 µs.
            return self.rest(machine, false, until);
        }
        let mut moved = false;
        let mut broken = false;
        let Self { wanted, sessions, active, resting, wait_for_credit, .. } = self;
        active.retain(|&index| {
            let session = &mut sessions[index];
            let mut socket = machine.socket(session.connection);
            let has_moved = session.poll(&mut socket, wanted, over);
            moved |= has_moved;
            if session.is_done() {
                return false;
            }
            broken |= !socket.may_receive();
            if has_moved {
                session.moved = now;
            }
            let rests = now - session.moved >= STALLED;
            if rests {
                *wait_for_credit &= socket.waits_for_credit();
                resting.push(index);
            }
            !rests
        });
        if !active.is_empty() {
            active.rotate_left(1);
        }
        if !resting.is_empty() {
            self.next_look.get_or_insert(now + REST);
        }
        if self.active.is_empty() && self.resting.is_empty() {
            return self.finish(machine, begun);
        }
        if broken {
            return self.fail(machine, "was ended by the server");
        }
        match self.patience {
            Some(patience) if now >= patience => {
                self.fail(machine, "did not drain: bytes were never confirmed")
            }
            _ if moved => Next::Again,
            patience => self.rest(machine, over, patience.filter(|_| over).unwrap_or(until)),
        }
    }

    fn stop(&mut self, machine: &mut Machine) {
        for session in self.sessions.drain(..) {
            machine.abort(session.connection);
        }
    }
}
