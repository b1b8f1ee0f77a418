//! Sources: the transmit sides of all queue pairs, and where each worker has its own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use taut_api::fabric::PortId;
use taut_api::fabric::config::WorkerMode;

use crate::port::Port;
use crate::switch::Switch;

/// The transmit side of one queue pair, as a place in the switch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source {
    pub(super) segment: usize,
    pub(super) member: u32,
    pub(super) pair: usize,
}

/// What all workers go by. Never changed; a new configuration is a new one, in which sources have other numbers.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) switch: Switch,
    pub(super) sources: Vec<Source>,
    /// Number of each port's first source, by port number.
    first: Vec<Option<u32>>,
    pub(super) mode: WorkerMode,
    /// How many workers there are.
    pub(super) workers: usize,
}

impl Plan {
    /// Numbers the sources of a switch.
    pub(super) fn new(switch: Switch, mode: WorkerMode, workers: usize) -> Self {
        let mut plan = Self { mode, workers, ..Self::default() };
        for (number, segment) in switch.segments.iter().enumerate() {
            for (member, place) in segment.members.iter().zip(0..) {
                let port = usize::from(member.port.id.0);
                if plan.first.len() <= port {
                    plan.first.resize(port + 1, None);
                }
                plan.first[port] = Some(plan.sources.len() as u32);
                let pairs = 0..member.port.pairs();
                plan.sources.extend(pairs.map(|pair| Source { segment: number, member: place, pair }));
            }
        }
        Self { switch, ..plan }
    }

    /// The port of a source.
    pub(super) fn port(&self, source: Source) -> &Arc<Port> {
        &self.switch.segments[source.segment].members[source.member as usize].port
    }

    /// Number of a port's first source; the others follow.
    pub(super) fn first(&self, port: PortId) -> Option<u32> {
        self.first.get(usize::from(port.0)).copied().flatten()
    }

    /// A port by its number.
    pub(super) fn find(&self, port: PortId) -> Option<&Arc<Port>> {
        self.first(port).map(|first| self.port(self.sources[first as usize]))
    }

    /// Numbers of the sources that a worker owns now.
    pub(super) fn owned_by(&self, worker: usize) -> impl Iterator<Item = u32> {
        (0..).zip(&self.sources).filter_map(move |(number, &source)| {
            (self.port(source).owner(source.pair) == worker).then_some(number)
        })
    }

    /// For how long a port is polled after its last frame. Polling a device is a system call each time: a device's
    /// readiness is told anyway.
    pub(super) fn patience(&self, port: &Port) -> Duration {
        match self.mode {
            WorkerMode::Interrupt => Duration::ZERO,
            WorkerMode::Adaptive { poll_us } => Duration::from_micros(poll_us.into()),
            WorkerMode::Polling if port.is_guest() => Duration::MAX,
            WorkerMode::Polling => Duration::from_micros(50),
        }
    }
}

/// A source as the worker sees it that owns it.
#[derive(Debug, Clone, Copy)]
pub(super) struct State {
    /// It is looked at in each round.
    pub(super) active: bool,
    /// Its first frame waits for a receiver's room: room that is announced anywhere is passed on to this worker.
    pub(super) waits: bool,
    /// The timer that counts.
    pub(super) wake: Option<Instant>,
    /// When it last had a frame.
    pub(super) last_frame: Instant,
    /// For how long it is polled after that.
    pub(super) patience: Duration,
    /// Nanoseconds that its bursts took since the last measurement.
    pub(super) busy: u64,
}

impl State {
    /// A source that nothing is known of.
    pub(super) fn new(now: Instant, patience: Duration) -> Self {
        Self { active: false, waits: false, wake: None, last_frame: now, patience, busy: 0 }
    }
}
