//! Cards of the host whose sockets no epoll set watches while their worker is busy with them.
//!
//! The kernel calls every epoll set that watches a socket for each frame that arrives, and for each
//! one that has left, whatever events the set wants. For short frames, that is a tenth of the
//! kernel's work. A busy worker therefore ends the watch of a card that has many frames, and looks
//! at its rings itself whenever it looks for events. Before it sleeps, it has all its cards watched
//! again.
//!
//! Only the owner of a card does so. The next owner has the card watched when it becomes its own
//! ([`Port::give`]).

use std::time::{Duration, Instant};

use taut_api::fabric::counters::PortWord;

use super::plan::Plan;
use super::thread::Worker;
use crate::net::queue::PairIdx;
use crate::port::{Port, TxEnd};
use crate::wake::mailbox::WorkerIdx;
use crate::wake::timers::SourceIdx;

/// Shortest interval between two counts of frames.
const INTERVAL: Duration = Duration::from_millis(1);
/// Longest interval that tells how many frames a card has. A worker that was not busy meanwhile has
/// not counted.
const LONGEST: Duration = Duration::from_millis(2);
/// Number of frames in an interval from which on a card is not watched. To end its watch and to
/// begin it again takes two system calls for each socket, at most once in an interval.
const MANY: u64 = 128;
/// Time after which a worker looks at cards that the kernel refuses to watch.
pub(super) const UNWATCHED: Duration = Duration::from_millis(1);

/// A card, as a worker sees it that may own its source.
#[derive(Debug)]
struct Card {
    source: SourceIdx,
    /// Number of frames in both directions at the last count.
    frames: u64,
    /// This worker has not ended the watch.
    watched: bool,
}

impl Card {
    /// Takes the next count, after `elapsed`. Returns `true` if there were many frames in that
    /// time.
    fn count(&mut self, frames: u64, elapsed: Duration) -> bool {
        let more = frames.wrapping_sub(std::mem::replace(&mut self.frames, frames));
        elapsed <= LONGEST && more >= MANY
    }
}

/// The cards of a plan.
#[derive(Debug, Default)]
pub(super) struct Cards {
    all: Vec<Card>,
    /// Time of the last count.
    counted: Option<Instant>,
    /// Some card is not [`Card::watched`].
    some_unwatched: bool,
}

impl Cards {
    /// Lists the cards of a plan. If not all are known to be watched, the worker looks at all.
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
        let elapsed = self.cards.counted.map(|at| now.saturating_duration_since(at));
        let counts = elapsed.is_none_or(|elapsed| elapsed >= INTERVAL);
        if !counts && !self.cards.some_unwatched {
            return;
        }
        let mut cards = std::mem::take(&mut self.cards);
        cards.some_unwatched = false;
        for card in &mut cards.all {
            let port = self.plan.port(self.plan.source(card.source));
            if port.owner(PairIdx::FIRST) != self.number {
                card.watched = true;
                continue;
            }
            if counts {
                let many = card.count(frames(port), elapsed.unwrap_or(Duration::MAX));
                // A socket that was attached anew is watched.
                if many || !card.watched {
                    card.watched = !unwatch(port, self.number);
                }
            }
            if !card.watched {
                cards.some_unwatched = true;
                // A source that is active, or waits for room or time, needs no look.
                if self.sources.state(card.source).needs_event() && has_frame(port, self.number) {
                    self.activate(card.source);
                }
            }
        }
        if counts {
            cards.counted = Some(now);
        }
        self.cards = cards;
    }

    /// Has the worker's cards watched again. A frame that is there already is reported. Returns
    /// `false` if the kernel refuses that for one of them.
    pub(super) fn watch_cards(&mut self) -> bool {
        if !self.cards.some_unwatched {
            return true;
        }
        let mut all = true;
        for card in self.cards.all.iter_mut().filter(|card| !card.watched) {
            let port = self.plan.port(self.plan.source(card.source));
            card.watched =
                port.owner(PairIdx::FIRST) != self.number || port.tx(PairIdx::FIRST).watch().is_ok();
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

/// Ends the watch of a card, if this worker is still its owner: the owner changes under the lock.
fn unwatch(port: &Port, worker: WorkerIdx) -> bool {
    let mut slot = port.tx(PairIdx::FIRST);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_has_many_frames_only_if_they_came_in_a_short_time() {
        let mut card = Card { source: SourceIdx(0), frames: 0, watched: true };
        assert!(!card.count(1_000_000, Duration::MAX), "the first count tells nothing");
        assert!(card.count(1_000_000 + MANY, INTERVAL));
        assert!(!card.count(1_000_000 + 2 * MANY - 1, INTERVAL));
        assert!(!card.count(2_000_000, Duration::from_millis(300)), "it may have been a slow stream");
        assert!(card.count(2_000_000 + MANY, LONGEST));
    }

    #[test]
    fn counters_may_begin_anew() {
        let mut card = Card { source: SourceIdx(0), frames: u64::MAX - 1, watched: true };
        assert!(card.count(MANY, INTERVAL));
        assert!(!card.count(MANY, INTERVAL));
    }
}
