//! What a worker has to come back to at a given time.
//!
//! Each worker keeps its own: whoever finds that something of a queue is due later, keeps the timer for it, whichever
//! worker owns the queue. So setting one never takes a lock nor wakes anybody.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

use taut_api::fabric::PortId;

/// What is to be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wake {
    /// A source, by its number in the plan in force.
    Source(u32),
    /// The receive queue of a port's pair: `RxSlot::due`.
    Receiver(PortId, usize),
    /// The transmit queue of a port's pair, whether it is served or not: `TxSlot::due`.
    Sender(PortId, usize),
}

/// One worker's timers, the next one first.
#[derive(Debug, Default)]
pub struct Timers(BinaryHeap<Reverse<(Instant, Wake)>>);

impl Timers {
    /// Has `wake` looked at when `when` has come. For a queue, ask its [`Deadline`] first whether a timer is
    /// needed. Timers are not taken back: a look that turns out to be for nothing does no harm.
    pub fn at(&mut self, when: Instant, wake: Wake) {
        self.0.push(Reverse((when, wake)));
    }

    /// When the next one goes off.
    #[inline]
    pub fn next(&self) -> Option<Instant> {
        self.0.peek().map(|Reverse((when, _))| *when)
    }

    /// Takes one whose time has come.
    #[inline]
    pub fn pop_due(&mut self, now: Instant) -> Option<(Instant, Wake)> {
        if self.next()? > now {
            return None;
        }
        self.0.pop().map(|Reverse(timer)| timer)
    }

    /// Takes all out, in no order.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = (Instant, Wake)> {
        self.0.drain().map(|Reverse(timer)| timer)
    }

    /// Forgets the timers of sources: their numbers mean something else from now on.
    pub(crate) fn forget_sources(&mut self) {
        self.0.retain(|Reverse((_, wake))| !matches!(wake, Wake::Source(_)));
    }
}

/// When somebody looks at a queue next. It is part of what the queue's lock protects.
///
/// Several may ask; the earliest time counts, and whoever asked for a later one asks again when it is looked at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Deadline(Option<Instant>);

impl Deadline {
    /// Asks for a look at `when` or before; `true` if the caller has to keep a timer for it, in its [`Timers`].
    #[must_use]
    #[inline]
    pub fn ask(&mut self, when: Instant) -> bool {
        let needed = self.0.is_none_or(|earlier| when < earlier);
        if needed {
            self.0 = Some(when);
        }
        needed
    }

    /// The timer for `when` has gone off: if it was the earliest, the next one to ask needs another.
    pub fn went_off(&mut self, when: Instant) {
        if self.0 == Some(when) {
            self.0 = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn timers_go_off_in_order_and_not_before_their_time() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut timers = Timers::default();
        timers.at(at(5), Wake::Source(1));
        timers.at(at(2), Wake::Receiver(PortId(7), 0));
        timers.at(at(9), Wake::Source(2));
        assert_eq!(timers.next(), Some(at(2)));
        assert_eq!(timers.pop_due(at(1)), None);
        assert_eq!(timers.pop_due(at(6)), Some((at(2), Wake::Receiver(PortId(7), 0))));
        assert_eq!(timers.pop_due(at(6)), Some((at(5), Wake::Source(1))));
        assert_eq!(timers.pop_due(at(6)), None);
        timers.forget_sources();
        assert_eq!(timers.next(), None);
    }

    proptest! {
        /// Several workers ask and keep timers, in whatever order: no wish is overslept, and there are never more timers
        /// than wishes.
        #[test]
        fn every_wish_is_looked_at_in_time(wishes in prop::collection::vec((0_u64..50, 0_u64..100), 1..40)) {
            let start = Instant::now();
            let at = |ms| start + Duration::from_millis(ms);
            let mut wishes = wishes;
            wishes.sort_unstable();
            let mut deadline = Deadline::default();
            let mut timers = [Timers::default(), Timers::default()];
            let mut open = Vec::new();
            let mut asked = wishes.into_iter().peekable();
            for now in 0..=150 {
                while let Some(&(when_asked, after)) = asked.peek().filter(|(when, _)| *when == now) {
                    asked.next();
                    let due = when_asked + after;
                    open.push(due);
                    let worker = usize::from(due % 2 == 1);
                    if deadline.ask(at(due)) {
                        timers[worker].at(at(due), Wake::Receiver(PortId(0), 0));
                    }
                }
                for timers in &mut timers {
                    while let Some((when, wake)) = timers.pop_due(at(now)) {
                        deadline.went_off(when);
                        open.retain(|&due| due > now);
                        if let Some(&next) = open.iter().min() && deadline.ask(at(next)) {
                            timers.at(at(next), wake);
                        }
                    }
                }
                prop_assert!(open.iter().all(|&due| due > now), "{open:?} at {now}");
            }
            prop_assert_eq!(deadline, Deadline::default());
        }
    }
}
