//! Sources whose ports have a reservation on an uplink: they come first while a round pauses.
//!
//! Two things give a source precedence:
//! - a turn at an uplink that has begun, because network I/O control has decided that the port is
//!   the next one, and takes the turn back if it is not used soon;
//! - a reservation that is behind ([`crate::port::reservation`]), because nobody has turns while
//!   the uplink is faster than the workers.
//!
//! A source with precedence is served a burst more. It keeps its place in the round.

use std::collections::VecDeque;
use std::time::Duration;

use crate::wake::timers::SourceIdx;

/// Time of bursts after which a round pauses, if some port has a reservation: the worker looks for
/// messages, timers and events, and serves sources that come first. A burst that has taken as long
/// ends ([`Workspace::longest_burst`](crate::switch::forward::Workspace::longest_burst)).
pub(super) const PAUSE_AFTER: Duration = Duration::from_micros(25);
/// Number of sources whose reservations are looked at in a pause. If more are active, each pause
/// goes on where the last one has ended.
const LOOKS: usize = 16;

/// A worker's active sources that may come first.
#[derive(Debug, Default)]
pub(super) struct Reserved {
    sources: Vec<SourceIdx>,
    /// Place of the next look.
    at: usize,
    /// Sources of these whose turns at an uplink have begun.
    turns: VecDeque<SourceIdx>,
}

impl Reserved {
    /// Number of looks in one pause.
    pub(super) fn looks(&self) -> usize {
        self.sources.len().min(LOOKS)
    }

    /// Returns a source that comes first now. `looks` is the number of looks that the pause has
    /// left. `is_behind` tells whether the reservation of a source is behind.
    pub(super) fn next(
        &mut self,
        looks: &mut usize,
        mut is_behind: impl FnMut(SourceIdx) -> bool,
    ) -> Option<SourceIdx> {
        if let Some(source) = self.turns.pop_front() {
            return Some(source);
        }
        while *looks > 0 {
            *looks -= 1;
            if self.at >= self.sources.len() {
                self.at = 0;
            }
            let source = *self.sources.get(self.at)?;
            self.at += 1;
            if is_behind(source) {
                return Some(source);
            }
        }
        None
    }

    /// Adds a source that has become active.
    pub(super) fn add(&mut self, source: SourceIdx) {
        self.sources.push(source);
    }

    /// Notes that the turn of a source has begun, which is in the list.
    pub(super) fn begin_turn(&mut self, source: SourceIdx) {
        if !self.turns.contains(&source) {
            self.turns.push_back(source);
        }
    }

    /// Removes a source that is no longer active.
    pub(super) fn remove(&mut self, source: SourceIdx) {
        self.sources.retain(|&other| other != source);
        self.turns.retain(|&other| other != source);
    }

    /// Removes all sources.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reserved(sources: u32) -> Reserved {
        let mut reserved = Reserved::default();
        (0..sources).for_each(|source| reserved.add(SourceIdx(source)));
        reserved
    }

    /// Returns the sources that come first in one pause.
    fn pause(reserved: &mut Reserved, is_behind: impl Fn(u32) -> bool) -> Vec<u32> {
        let mut looks = reserved.looks();
        std::iter::from_fn(|| reserved.next(&mut looks, |SourceIdx(source)| is_behind(source)))
            .map(|SourceIdx(source)| source)
            .collect()
    }

    #[test]
    fn each_source_that_is_behind_comes_first_once_in_a_pause() {
        let mut reserved = reserved(3);
        assert_eq!(pause(&mut reserved, |source| source != 1), [0, 2]);
        assert!(pause(&mut reserved, |_| false).is_empty());
        reserved.remove(SourceIdx(0));
        assert_eq!(pause(&mut reserved, |_| true).len(), 2);
        reserved.clear();
        assert!(pause(&mut reserved, |_| true).is_empty());
    }

    #[test]
    fn of_many_sources_each_pause_looks_at_others() {
        let mut reserved = reserved(40);
        let mut found: Vec<u32> = (0..3).flat_map(|_| pause(&mut reserved, |_| true)).collect();
        assert_eq!(found.len(), 3 * LOOKS);
        found.sort_unstable();
        found.dedup();
        assert_eq!(found.len(), 40);
    }

    #[test]
    fn a_turn_that_has_begun_comes_first_once() {
        let mut reserved = reserved(40);
        for source in [33, 7, 33, 8] {
            reserved.begin_turn(SourceIdx(source));
        }
        reserved.remove(SourceIdx(8));
        assert_eq!(pause(&mut reserved, |_| false), [33, 7]);
        assert!(pause(&mut reserved, |_| false).is_empty());
    }
}
