//! The plan that all workers follow: the switch, its sources, and the polling mode.

use std::sync::Arc;
use std::time::Duration;

use taut_api::fabric::PortId;
use taut_api::fabric::config::WorkerMode;

use crate::net::queue::PairIdx;
use crate::port::Port;
use crate::switch::Switch;
use crate::switch::index::{MemberIdx, SegmentIdx};
use crate::switch::segment::Segment;
use crate::wake::mailbox::WorkerIdx;
use crate::wake::timers::SourceIdx;

/// Polling time of an idle device by a worker that polls all rings. Each poll of a TAP device is a
/// system call, and an event, or a look at the cards, tells of the next frame anyway.
const DEVICE_PATIENCE: Duration = Duration::from_micros(50);

/// The transmit side of one queue pair, as a location in the switch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source {
    pub(super) segment: SegmentIdx,
    pub(super) member: MemberIdx,
    pub(super) pair: PairIdx,
}

impl Source {
    /// The segment of the source.
    #[inline]
    pub(super) fn segment(self, switch: &Switch) -> &Segment {
        switch.segment(self.segment)
    }

    /// The port of the source.
    #[inline]
    pub(super) fn port(self, switch: &Switch) -> &Arc<Port> {
        &self.segment(switch).member(self.member).port
    }
}

/// The plan in force. A plan is immutable; a new configuration is a new plan with other source
/// indices.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) switch: Switch,
    pub(super) sources: Vec<Source>,
    /// Each port's first source, by port number.
    first: Vec<Option<SourceIdx>>,
    pub(super) mode: WorkerMode,
    /// Some port has a reservation on an uplink, so rounds pause.
    pub(super) has_reservations: bool,
    /// Number of workers.
    pub(super) workers: usize,
    /// The pCPUs of each worker; an empty list permits all.
    cpus: Vec<Vec<u32>>,
}

impl Plan {
    /// Enumerates the sources of a switch. There is a worker for each list of pCPUs.
    pub(super) fn new(switch: Switch, mode: WorkerMode, cpus: Vec<Vec<u32>>) -> Self {
        let mut plan = Self { mode, workers: cpus.len(), cpus, ..Self::default() };
        for (segment, members) in (0..).map(SegmentIdx).zip(&switch.segments) {
            for (member, place) in members.members.iter().zip((0..).map(MemberIdx)) {
                let port = usize::from(member.port.id.0);
                if plan.first.len() <= port {
                    plan.first.resize(port + 1, None);
                }
                plan.first[port] = Some(SourceIdx(plan.sources.len() as u32));
                plan.has_reservations |= member.port.has_reservation();
                let pairs = PairIdx::all(member.port.pairs());
                plan.sources.extend(pairs.map(|pair| Source { segment, member: place, pair }));
            }
        }
        Self { switch, ..plan }
    }

    /// The pCPUs that a worker binds itself to.
    pub(super) fn cpus(&self, worker: WorkerIdx) -> &[u32] {
        self.cpus.get(worker.index()).map_or(&[], Vec::as_slice)
    }

    /// The source with this index.
    #[inline]
    pub(super) fn source(&self, index: SourceIdx) -> Source {
        self.sources[index.index()]
    }

    /// The port of a source.
    pub(super) fn port(&self, source: Source) -> &Arc<Port> {
        source.port(&self.switch)
    }

    /// A port's first source. The sources of its other pairs follow.
    pub(super) fn first(&self, port: PortId) -> Option<SourceIdx> {
        self.first.get(usize::from(port.0)).copied().flatten()
    }

    /// A port by its number.
    pub(super) fn find(&self, port: PortId) -> Option<&Arc<Port>> {
        self.first(port).map(|first| self.port(self.source(first)))
    }

    /// A port by its number, if it has this pair.
    pub(super) fn find_pair(&self, port: PortId, pair: PairIdx) -> Option<&Arc<Port>> {
        self.find(port).filter(|port| port.has(pair))
    }

    /// The sources that a worker owns now.
    pub(super) fn owned_by(&self, worker: WorkerIdx) -> impl Iterator<Item = SourceIdx> {
        (0..).map(SourceIdx).zip(&self.sources).filter_map(move |(index, &source)| {
            (self.port(source).owner(source.pair) == worker).then_some(index)
        })
    }

    /// The time for which a port is polled after its last frame.
    pub(super) fn patience(&self, port: &Port) -> Duration {
        match self.mode {
            WorkerMode::Interrupt => Duration::ZERO,
            WorkerMode::Adaptive { poll_us } => Duration::from_micros(poll_us.into()),
            WorkerMode::Polling if port.is_guest() => Duration::MAX,
            WorkerMode::Polling => DEVICE_PATIENCE,
        }
    }
}
