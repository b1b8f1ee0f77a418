//! Cards of the host whose sockets no epoll set watches while their worker is busy with them.
//!
//! The kernel calls every epoll set that watches a socket for each frame that arrives, and for each
//! one that has left, whatever events the set wants. For short frames, that is a tenth of the
//! kernel's work. A worker therefore looks at the rings of a card that has many frames itself, when
//! it looks for events anyway. Before it sleeps, it has all sockets watched again.

use std::time::{Duration, Instant};

use taut_api::fabric::counters::PortWord;

use super::plan::Plan;
use super::thread::Worker;
use crate::net::queue::PairIdx;
use crate::port::{Port, TxEnd};
use crate::wake::mailbox::WorkerIdx;
use crate::wake::timers::SourceIdx;

/// Interval at which frames are counted.
const INTERVAL: Duration = Duration::from_millis(1);
/// Number of frames in an interval from which on a socket is not watched. To end a watch and to
/// begin it again takes two system calls, at most once in an interval.
const MANY: u64 = 128;
/// Time after which a worker looks at cards whose sockets the kernel refuses to watch.
pub(super) const UNWATCHED: Duration = Duration::from_millis(1);

/// A card, as the worker that owns its source sees it.
#[derive(Debug)]
struct Card {
    source: SourceIdx,
    /// Number of frames in both directions at the last count.
    frames: u64,
    watched: bool,
}

/// The cards of a worker.
#[derive(Debug, Default)]
pub(super) struct Cards {
    all: Vec<Card>,
    /// Time of the last count.
    counted: Option<Instant>,
    /// Some card is not watched.
    some_unwatched: bool,
}

impl Cards {
    /// Lists the cards of a plan, which are `watched` or may be not.
    pub(super) fn of(plan: &Plan, watched: bool) -> Self {
        let has_card = |source| plan.port(plan.source(source)).has_card();
        let sources = (0..plan.sources.len() as u32).map(SourceIdx).filter(|source| has_card(*source));
        let cards = sources.map(|source| Card { source, frames: 0, watched });
        Self { all: cards.collect(), counted: None, some_unwatched: !watched }
    }
}

impl Worker {
    /// Looks at the cards that are not watched, and ends the watch of those with many frames. A
    /// busy worker calls it when it looks for events.
    #[inline]
    pub(super) fn look_at_cards(&mut self, now: Instant) {
        if !self.cards.all.is_empty() {
            self.look_at_each_card(now);
        }
    }

    #[inline(never)]
    fn look_at_each_card(&mut self, now: Instant) {
        let counts = self.cards.counted.is_none_or(|at| now.saturating_duration_since(at) >= INTERVAL);
        if !counts && !self.cards.some_unwatched {
            return;
        }
        let mut cards = std::mem::take(&mut self.cards);
        let first = cards.counted.is_none();
        for card in &mut cards.all {
            let port = self.plan.port(self.plan.source(card.source));
            if counts {
                let frames = frames(port);
                let many = !first && frames.wrapping_sub(card.frames) >= MANY;
                card.frames = frames;
                if many && card.watched && unwatch(port, self.number) {
                    (card.watched, cards.some_unwatched) = (false, true);
                }
            }
            if !card.watched && has_frame(port, self.number) {
                self.activate(card.source);
            }
        }
        if counts {
            cards.counted = Some(now);
        }
        self.cards = cards;
    }

    /// Has all cards watched again. A frame that is there already is reported. Returns `false` if
    /// the kernel refuses that for one of them.
    pub(super) fn watch_cards(&mut self) -> bool {
        if !self.cards.some_unwatched {
            return true;
        }
        let mut all = true;
        for card in self.cards.all.iter_mut().filter(|card| !card.watched) {
            let port = self.plan.port(self.plan.source(card.source));
            // Another owner has it watched already, which is no error.
            card.watched = port.tx(PairIdx::FIRST).watch().is_ok();
            all &= card.watched;
        }
        self.cards.some_unwatched = !all;
        all
    }
}

/// Returns the number of frames that a card has had in both directions.
fn frames(port: &Port) -> u64 {
    port.counters.get(PortWord::RxFrames).wrapping_add(port.counters.get(PortWord::TxFrames))
}

/// Ends the watch of a card, if this worker is still its owner.
fn unwatch(port: &Port, worker: WorkerIdx) -> bool {
    let mut slot = port.tx(PairIdx::FIRST);
    // The owner changes under this lock, and the new one has the card watched.
    let own = port.owner(PairIdx::FIRST) == worker;
    if own {
        slot.unwatch();
    }
    own
}

/// Tells whether a card of this worker has a frame, or has failed.
fn has_frame(port: &Port, worker: WorkerIdx) -> bool {
    let mut slot = port.tx(PairIdx::FIRST);
    port.owner(PairIdx::FIRST) == worker && slot.end.as_mut().is_some_and(TxEnd::has_frame)
}
