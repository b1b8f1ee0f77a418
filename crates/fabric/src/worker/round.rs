//! The order in which a worker serves its active sources: in rounds, which may pause.

use crate::wake::timers::SourceIdx;

/// Active sources, and the place of the round.
///
/// A source that becomes active while the round pauses is served in the next one. So a source that
/// stays active has its place in each round, however often others become active.
#[derive(Debug, Default)]
pub(super) struct Round {
    /// Sources of the round, then those that have become active since its beginning.
    sources: Vec<SourceIdx>,
    /// Place of the source that is served next.
    at: usize,
    /// Number of sources of the round.
    end: usize,
}

impl Round {
    /// Tells whether no source is active.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// Begins the next round, unless the last one has paused. Returns `true` if that continues.
    #[inline]
    pub(super) fn resume(&mut self) -> bool {
        let has_paused = self.at < self.end;
        if !has_paused {
            (self.at, self.end) = (0, self.sources.len());
        }
        has_paused
    }

    /// The source that is served next; `None` at the end of the round.
    #[inline]
    pub(super) fn current(&self) -> Option<SourceIdx> {
        (self.at < self.end).then(|| self.sources[self.at])
    }

    /// Goes on to the next source. The current one stays active.
    #[inline]
    pub(super) fn keep_current(&mut self) {
        self.at += 1;
    }

    /// Removes the current source. The last one of the round takes its place.
    #[inline]
    pub(super) fn remove_current(&mut self) {
        self.end -= 1;
        self.sources.swap(self.at, self.end);
        self.sources.swap_remove(self.end);
    }

    /// Adds a source that is not in the list.
    pub(super) fn add(&mut self, source: SourceIdx) {
        self.sources.push(source);
    }

    /// Removes a source, if it is active.
    pub(super) fn remove(&mut self, source: SourceIdx) {
        if let Some(place) = self.sources.iter().position(|&other| other == source) {
            self.sources.remove(place);
            self.at -= usize::from(place < self.at);
            self.end -= usize::from(place < self.end);
        }
    }

    /// Removes all sources.
    pub(super) fn clear(&mut self) {
        self.sources.clear();
        (self.at, self.end) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(sources: &[u32]) -> Round {
        let mut round = Round::default();
        for &source in sources {
            round.add(SourceIdx(source));
        }
        round
    }

    /// Goes on by so many sources, of which those in `idle` are removed. Returns their numbers.
    fn serve(round: &mut Round, most: usize, idle: &[u32]) -> Vec<u32> {
        let mut served = Vec::new();
        while served.len() < most
            && let Some(SourceIdx(source)) = round.current()
        {
            served.push(source);
            if idle.contains(&source) {
                round.remove_current();
            } else {
                round.keep_current();
            }
        }
        served
    }

    #[test]
    fn each_source_has_its_place_once_in_a_round() {
        let mut round = round(&[1, 2, 3, 4]);
        assert!(!round.resume());
        assert_eq!(serve(&mut round, 9, &[2]), [1, 2, 4, 3]);
        assert!(!round.resume());
        assert_eq!(serve(&mut round, 9, &[1, 3, 4]), [1, 3, 4]);
        assert!(round.is_empty() && !round.resume() && round.current().is_none());
    }

    #[test]
    fn a_source_that_becomes_active_in_a_pause_waits_for_the_next_round() {
        let mut round = round(&[1, 2, 3]);
        round.resume();
        assert_eq!(serve(&mut round, 2, &[1]), [1, 3]);
        round.add(SourceIdx(7));
        assert!(round.resume());
        assert_eq!(serve(&mut round, 9, &[2]), [2]);
        assert!(!round.resume());
        assert_eq!(serve(&mut round, 9, &[]), [3, 7]);
    }

    #[test]
    fn a_source_that_is_removed_in_a_pause_costs_no_other_its_place() {
        for (removed, expected) in [(1, vec![3, 4]), (2, vec![3, 4]), (3, vec![4]), (5, vec![3, 4])] {
            let mut round = round(&[1, 2, 3, 4]);
            round.resume();
            serve(&mut round, 2, &[]);
            round.add(SourceIdx(5));
            round.remove(SourceIdx(removed));
            assert_eq!(serve(&mut round, 9, &[]), expected, "without {removed}");
            round.clear();
            assert!(!round.resume() && round.current().is_none());
        }
    }
}
