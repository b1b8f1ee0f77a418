//! Times at which a worker has to come back to something.
//!
//! Each worker keeps timers of its own. The worker that finds something of a queue due later keeps
//! the timer for it, whichever worker owns the queue. Setting a timer therefore takes no lock and
//! wakes no other thread.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

use taut_api::fabric::PortId;

use crate::net::queue::PairIdx;

/// Index of a source, the transmit side of a queue pair, in the plan in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SourceIdx(pub u32);

impl SourceIdx {
    /// Position in an array with one element for each source.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The source of another pair, where `self` is the source of the port's first pair.
    #[inline]
    #[must_use]
    pub const fn of_pair(self, pair: PairIdx) -> Self {
        Self(self.0 + pair.0)
    }
}

/// The object that a timer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wake {
    /// A source.
    Source(SourceIdx),
    /// The receive queue of a port's pair: `RxSlot::due`.
    Receiver(PortId, PairIdx),
    /// The transmit queue of a port's pair, served or not: `TxSlot::due`.
    Sender(PortId, PairIdx),
    /// The source of a port's pair whose turn at an uplink has begun.
    Turn(PortId, PairIdx),
}

/// One worker's timers, the earliest first.
#[derive(Debug, Default)]
pub struct Timers(BinaryHeap<Reverse<(Instant, Wake)>>);

impl Timers {
    /// Sets a timer. For a queue, ask its [`Deadline`] first whether a timer is needed.
    ///
    /// A timer cannot be removed; one that expires without need does no harm.
    pub fn set(&mut self, when: Instant, wake: Wake) {
        self.0.push(Reverse((when, wake)));
    }

    /// Time of the earliest timer.
    #[inline]
    pub fn next(&self) -> Option<Instant> {
        self.0.peek().map(|Reverse((when, _))| *when)
    }

    /// Removes and returns one timer that has expired.
    #[inline]
    pub fn pop_due(&mut self, now: Instant) -> Option<(Instant, Wake)> {
        if self.next()? > now {
            return None;
        }
        self.0.pop().map(|Reverse(timer)| timer)
    }

    /// Removes all timers and returns them in no particular order.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = (Instant, Wake)> {
        self.0.drain().map(|Reverse(timer)| timer)
    }

    /// Removes the timers of sources: their indices are invalid after a change of the plan.
    pub(crate) fn forget_sources(&mut self) {
        self.0.retain(|Reverse((_, wake))| !matches!(wake, Wake::Source(_)));
    }
}

/// The time at which some worker looks at a queue next. The queue's lock protects it.
///
/// Several workers may request a look. The earliest time counts; a worker that wanted a later one
/// requests it again when it looks at the queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Deadline(Option<Instant>);

impl Deadline {
    /// Requests a look at `when` or earlier. Returns `true` if the caller has to set a timer for
    /// it.
    #[must_use]
    #[inline]
    pub fn request(&mut self, when: Instant) -> bool {
        let needed = self.0.is_none_or(|earlier| when < earlier);
        if needed {
            self.0 = Some(when);
        }
        needed
    }

    /// Notes that the timer for `when` has expired. If it was the earliest, the next request needs
    /// another timer.
    pub fn expire(&mut self, when: Instant) {
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
    fn timers_expire_in_order_and_not_before_their_time() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut timers = Timers::default();
        timers.set(at(5), Wake::Source(SourceIdx(1)));
        timers.set(at(2), Wake::Receiver(PortId(7), PairIdx::FIRST));
        timers.set(at(9), Wake::Source(SourceIdx(2)));
        assert_eq!(timers.next(), Some(at(2)));
        assert_eq!(timers.pop_due(at(1)), None);
        assert_eq!(timers.pop_due(at(6)), Some((at(2), Wake::Receiver(PortId(7), PairIdx::FIRST))));
        assert_eq!(timers.pop_due(at(6)), Some((at(5), Wake::Source(SourceIdx(1)))));
        assert_eq!(timers.pop_due(at(6)), None);
        timers.forget_sources();
        assert_eq!(timers.next(), None);
    }

    proptest! {
        /// Several workers request looks and keep timers, in any order: no request is missed, and
        /// there are never more timers than requests.
        #[test]
        fn every_request_is_served_in_time(requests in prop::collection::vec((0_u64..50, 0_u64..100), 1..40)) {
            let start = Instant::now();
            let at = |ms| start + Duration::from_millis(ms);
            let mut requests = requests;
            requests.sort_unstable();
            let mut deadline = Deadline::default();
            let mut timers = [Timers::default(), Timers::default()];
            let mut open = Vec::new();
            let mut pending = requests.into_iter().peekable();
            for now in 0..=150 {
                while let Some(&(requested, after)) = pending.peek().filter(|(when, _)| *when == now) {
                    pending.next();
                    let due = requested + after;
                    open.push(due);
                    let worker = usize::from(due % 2 == 1);
                    if deadline.request(at(due)) {
                        timers[worker].set(at(due), Wake::Receiver(PortId(0), PairIdx::FIRST));
                    }
                }
                for timers in &mut timers {
                    while let Some((when, wake)) = timers.pop_due(at(now)) {
                        deadline.expire(when);
                        open.retain(|&due| due > now);
                        if let Some(&next) = open.iter().min() && deadline.request(at(next)) {
                            timers.set(at(next), wake);
                        }
                    }
                }
                prop_assert!(open.iter().all(|&due| due > now), "{open:?} at {now}");
            }
            prop_assert_eq!(deadline, Deadline::default());
        }
    }
}
