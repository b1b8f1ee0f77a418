//! Has both ends of both connections do the same, and compares what they say.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use super::Addresses;
use super::end::End;
use super::operation::{Kind, Operation};

/// Differences that are printed.
const MOST_PRINTED: u64 = 10;
/// Operations before a difference that are printed.
const HISTORY: usize = 40;
/// A reset on TCP, and what the documentation allows in its place.
const RESET: (&str, &str) = (", then Connection reset by peer (os error 104)", ", then the end");

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
    differences: u64,
    /// Resets that arrived as the end of the stream by the library.
    soft_resets: u64,
    scenarios: u64,
}

impl<S: Control> Driver<S> {
    pub(super) fn new(control: BufReader<S>, addresses: Addresses) -> Self {
        Self {
            control,
            addresses,
            ends: Vec::new(),
            history: VecDeque::new(),
            begin: Instant::now(),
            operations: 0,
            connections: 0,
            differences: 0,
            soft_resets: 0,
            scenarios: 0,
        }
    }

    /// Makes both connections anew.
    pub(super) fn connect(&mut self) {
        self.history.clear();
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

    /// Has an end of both connections do the same. Returns what came of it by TCP.
    pub(super) fn both(&mut self, side: Side, kind: Kind, count: usize) -> String {
        let operation = Operation { kind, count };
        let outcomes = [0, 1].map(|which| self.one(side, which, operation));
        self.compare(&format!("{side:?} {operation}"), outcomes)
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
        self.compare(&format!("{from:?} fill"), outcomes);
    }

    fn compare(&mut self, what: &str, [tcp, other]: [String; 2]) -> String {
        self.operations += 1;
        if self.history.len() == HISTORY {
            self.history.pop_front();
        }
        self.history.push_back(format!("{what}: {tcp}"));
        if tcp == other {
            return tcp;
        }
        if is_reset(&tcp, &other) {
            self.soft_resets += 1;
            return tcp;
        }
        self.differences += 1;
        if self.differences <= MOST_PRINTED {
            let mut text = format!("differs: connection {}, after", self.connections);
            for line in &self.history {
                let _ = write!(text, "\n  {line}");
            }
            println!("{text}\n  by the library: {other}");
        }
        tcp
    }

    /// Number of operations so far.
    pub(super) fn operations(&self) -> u64 {
        self.operations
    }

    /// Tells whether anything differs.
    pub(super) fn differs(&self) -> bool {
        self.differences > 0
    }

    /// Counts a scenario, and says whether it was the same by both.
    pub(super) fn scenario(&mut self, name: &str, before: u64) {
        self.scenarios += 1;
        println!("scenario {name}: {}.", if self.differences == before { "same" } else { "differs" });
    }

    pub(super) fn differences(&self) -> u64 {
        self.differences
    }

    /// Forgets the connections.
    pub(super) fn end(&mut self) {
        self.ends.clear();
    }

    pub(super) fn summary(&self, seed: u64) -> String {
        format!(
            "model: {} operations, {} scenarios, {} connections, {} differences, {} resets as ends, seed {seed}, {} ms.",
            self.operations,
            self.scenarios,
            self.connections,
            self.differences,
            self.soft_resets,
            self.begin.elapsed().as_millis()
        )
    }
}

/// Tells whether TCP was reset where the library's connection has ended, with the same bytes.
fn is_reset(tcp: &str, other: &str) -> bool {
    match (tcp.strip_suffix(RESET.0), other.strip_suffix(RESET.1)) {
        (Some(tcp), Some(other)) => tcp == other,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_reset_may_be_an_end() {
        let reset = format!("3 bytes, all right: true{}", RESET.0);
        let end = format!("3 bytes, all right: true{}", RESET.1);
        assert!(is_reset(&reset, &end));
        assert!(!is_reset(&end, &reset));
        assert!(!is_reset(&reset, &end.replace('3', "4")));
        assert!(!is_reset("EPIPE", "EAGAIN"));
    }
}
