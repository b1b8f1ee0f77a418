//! Has both ends of both connections do the same, and compares what they say.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use super::Addresses;
use super::allowed::{hangs_up, is_reset, lacks_writable};
use super::end::End;
use super::operation::{Kind, Operation};

/// Differences that are printed.
const MOST_PRINTED: u64 = 20;
/// Operations before a difference that are printed.
const HISTORY: usize = 25;
/// The way of commands and answers.
pub(super) trait Control: Read {
    /// Writes a line.
    fn say(&self, line: &str) -> io::Result<()>;
}

impl Control for TcpStream {
    fn say(&self, line: &str) -> io::Result<()> {
        let mut to = self;
        to.write_all(format!("{line}\n").as_bytes())
    }
}

impl Control for UnixStream {
    fn say(&self, line: &str) -> io::Result<()> {
        let mut to = self;
        to.write_all(format!("{line}\n").as_bytes())
    }
}

/// One of the two ends: this process, or the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Own = 0,
    Agent = 1,
}

impl Side {
    pub(super) fn other(self) -> Self {
        match self {
            Self::Own => Self::Agent,
            Self::Agent => Self::Own,
        }
    }
}

/// Has both ends of both connections do the same, and compares what they say.
pub(super) struct Driver<S> {
    control: BufReader<S>,
    addresses: Addresses,
    ends: Vec<End>,
    history: VecDeque<String>,
    begin: Instant,
    operations: u64,
    connections: u64,
    /// Connections that differ.
    differences: u64,
    /// The present connection is one of them.
    has_differed: bool,
    /// Ends that go by packets and have shut down their own direction.
    left: [bool; 2],
    shut: [bool; 2],
    /// Ends that have closed.
    closed: [bool; 2],
    /// Both ends certainly have queue pairs before one leaves: they use the connection before they
    /// do anything else with it.
    is_attached: bool,
    /// Unix sockets stand for those of the library.
    is_trial: bool,
    /// Resets that arrived as the end of the stream by the library.
    soft_resets: u64,
    /// Ends that were not writable although TCP's were, as documented.
    not_writable: u64,
    /// Results of `readv` that were short by the library.
    short_reads: u64,
    scenarios: u64,
}

impl<S: Control> Driver<S> {
    pub(super) fn new(control: BufReader<S>, addresses: Addresses, is_trial: bool) -> Self {
        Self {
            control,
            addresses,
            ends: Vec::new(),
            history: VecDeque::new(),
            begin: Instant::now(),
            operations: 0,
            connections: 0,
            differences: 0,
            has_differed: false,
            left: [false; 2],
            shut: [false; 2],
            closed: [false; 2],
            is_attached: false,
            is_trial,
            soft_resets: 0,
            not_writable: 0,
            short_reads: 0,
            scenarios: 0,
        }
    }

    /// Makes both connections anew.
    pub(super) fn connect(&mut self) {
        self.history.clear();
        (self.has_differed, self.left, self.shut, self.closed) = (false, [false; 2], [false; 2], [false; 2]);
        self.connections += 1;
        // The agent accepts from one listener after the other.
        self.control.get_ref().say("new").unwrap();
        let connect = |address: &std::net::SocketAddr| {
            End::new(TcpStream::connect(address.to_socket_addrs().unwrap().next().unwrap()).unwrap(), 0)
        };
        self.ends = self.addresses.iter().map(connect).collect();
        assert_eq!(self.answer(), "new");
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        let count = self.control.read_line(&mut line).unwrap();
        assert!(count > 0, "the other end has ended");
        line.trim_end().to_owned()
    }

    /// Has an end of one connection do something.
    fn one(&mut self, side: Side, which: usize, operation: Operation) -> String {
        match side {
            Side::Own => self.ends[which].execute(operation),
            Side::Agent => {
                self.control.get_ref().say(&format!("{which} {operation}")).unwrap();
                self.answer()
            }
        }
    }

    /// Has an end of both connections do the same.
    pub(super) fn both(&mut self, side: Side, kind: Kind, count: usize) {
        let operation = Operation { kind, count };
        let mut outcomes = [0, 1].map(|which| self.one(side, which, operation));
        // Waits only precede others.
        self.operations += u64::from(!matches!(kind, Kind::Settle | Kind::SettleEnd));
        self.left[side as usize] |= kind.leaves();
        self.shut[side as usize] |= kind == Kind::Shutdown;
        self.closed[side as usize] |= kind == Kind::Close;
        if kind == Kind::ReadPieces {
            let mut short = [0; 2];
            for (outcome, short) in outcomes.iter_mut().zip(&mut short) {
                if let Some((said, count)) = outcome.split_once(':') {
                    *short = count.parse().unwrap();
                    *outcome = said.to_owned();
                }
            }
            self.short_reads += short[1];
        }
        let looks = matches!(kind, Kind::Poll | Kind::Select | Kind::Events);
        if looks
            && (self.left[side as usize] || !self.is_attached)
            && self.shut[side as usize]
            && lacks_writable(&outcomes[0], &outcomes[1])
        {
            self.not_writable += 1;
            outcomes = [outcomes[0].clone(), outcomes[0].clone()];
        }
        // A Unix socket whose peer has closed says so (`POLLHUP`), unlike one of AF_VSOCK.
        let is_closed = self.is_trial && self.closed[side.other() as usize];
        if looks && is_closed && hangs_up(&outcomes[0], &outcomes[1]) {
            outcomes = [outcomes[0].clone(), outcomes[0].clone()];
        }
        self.compare(&format!("{side:?} {operation}"), outcomes);
    }

    /// Has one end write many bytes while the other one reads all, with those that are on their
    /// way already.
    pub(super) fn flood(&mut self, from: Side, count: usize, all: usize) {
        let outcomes = [0, 1].map(|which| {
            let write = Operation { kind: Kind::Flood, count };
            let read = Operation { kind: Kind::Drain, count: all };
            let (own, agent) = if from == Side::Own { (write, read) } else { (read, write) };
            self.control.get_ref().say(&format!("{which} {agent}")).unwrap();
            let said = self.ends[which].execute(own);
            format!("{said}, {}", self.answer())
        });
        self.operations += 1;
        self.compare(&format!("{from:?} flood {count}, all {all}"), outcomes);
    }

    /// Has one end write until that would wait, and the other one read all.
    pub(super) fn fill(&mut self, from: Side) {
        let outcomes = [0, 1].map(|which| {
            let said = self.one(from, which, Operation { kind: Kind::Fill, count: 0 });
            let (said, count) = said.split_once(':').unwrap_or((&said, "0"));
            let count = count.parse().unwrap_or(0);
            let full = self.one(from, which, Operation { kind: Kind::Select, count: 0 });
            let drained = self.one(from.other(), which, Operation { kind: Kind::Drain, count });
            let writable = self.one(from, which, Operation { kind: Kind::Writable, count: 0 });
            // It has to be more than what the other operations have on their way.
            format!("{said}, much: {}, {full}, {drained}, {writable}", count > 32 << 10)
        });
        self.operations += 1;
        self.compare(&format!("{from:?} fill"), outcomes);
    }

    fn compare(&mut self, what: &str, [tcp, other]: [String; 2]) {
        if self.history.len() == HISTORY {
            self.history.pop_front();
        }
        self.history.push_back(format!("{what}: {tcp}"));
        if tcp == other || self.has_differed {
            return;
        }
        if is_reset(&tcp, &other) {
            self.soft_resets += 1;
            return;
        }
        self.has_differed = true;
        self.differences += 1;
        if self.differences <= MOST_PRINTED {
            let mut text = format!(
                "differs: connection {}, left {:?}, shut down {:?}, after",
                self.connections, self.left, self.shut
            );
            for line in &self.history {
                let _ = write!(text, "\n  {line}");
            }
            println!("{text}\n  by the library: {other}");
        }
    }

    /// Number of operations so far, without waits.
    pub(super) fn operations(&self) -> u64 {
        self.operations
    }

    /// Tells whether anything differs.
    pub(super) fn differs(&self) -> bool {
        self.differences > 0
    }

    /// Says whether the next connections certainly have queue pairs, if there are any.
    pub(super) fn set_attached(&mut self, is_attached: bool) {
        self.is_attached = is_attached;
    }

    /// Counts a scenario, and says whether it was the same by both.
    pub(super) fn scenario(&mut self, name: &str, before: u64) {
        self.scenarios += 1;
        println!("scenario {name}: {}.", if self.differences == before { "same" } else { "differs" });
    }

    pub(super) fn differences(&self) -> u64 {
        self.differences
    }

    /// Tells whether the present connection differs. Nothing more is to be learned from it.
    pub(super) fn has_differed(&self) -> bool {
        self.has_differed
    }

    /// Closes both ends, whatever is on its way.
    pub(super) fn abandon(&mut self) {
        for side in [Side::Own, Side::Agent] {
            self.both(side, Kind::Close, 0);
        }
    }

    /// Forgets the connections.
    pub(super) fn end(&mut self) {
        self.ends.clear();
    }

    pub(super) fn summary(&self, seed: u64) -> String {
        format!(
            "model: {} operations, {} scenarios, {} connections, {} differences, {} resets as ends, {} times not writable, \
             {} short reads, seed {seed}, {} ms.",
            self.operations,
            self.scenarios,
            self.connections,
            self.differences,
            self.soft_resets,
            self.not_writable,
            self.short_reads,
            self.begin.elapsed().as_millis()
        )
    }
}
