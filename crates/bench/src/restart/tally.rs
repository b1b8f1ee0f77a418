//! Counts of the frames of one direction.

/// Number of latest frames that are remembered: more than can be under way.
const WINDOW: u64 = 4096;

/// Counts of frames.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Frames that never arrived. One under way counts as lost once a later one has arrived.
    pub(super) lost: u64,
    /// Frames that arrived again.
    pub(super) doubled: u64,
    /// Frames that arrived after a later one.
    pub(super) late: u64,
    /// Frames that arrived damaged.
    pub(super) corrupted: u64,
}

/// The numbers that have arrived.
#[derive(Debug)]
pub(super) struct Tally {
    /// One more than the highest number that has arrived.
    next: u64,
    seen: Vec<u64>,
    pub(super) counts: Counts,
}

impl Tally {
    pub(super) fn new() -> Self {
        Self { next: 0, seen: vec![0; (WINDOW / 64) as usize], counts: Counts::default() }
    }

    /// Returns one more than the highest number that has arrived.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Records a frame; `None` if it was damaged.
    pub(super) fn arrived(&mut self, number: Option<u64>) {
        let Some(number) = number else {
            self.counts.corrupted += 1;
            return;
        };
        if number >= self.next {
            let missing = number - self.next;
            self.counts.lost += missing;
            for skipped in self.next.max(number.saturating_sub(WINDOW))..number {
                self.mark(skipped, false);
            }
            self.mark(number, true);
            self.next = number + 1;
        } else if self.next - number > WINDOW || self.has_seen(number) {
            self.counts.doubled += 1;
        } else {
            self.mark(number, true);
            self.counts.lost -= 1;
            self.counts.late += 1;
        }
    }

    /// Counts every number below `number` that has not arrived as lost.
    pub(super) fn give_up(&mut self, number: u64) {
        let missing = number.saturating_sub(self.next);
        self.counts.lost += missing;
        for skipped in self.next.max(number.saturating_sub(WINDOW))..number {
            self.mark(skipped, false);
        }
        self.next = self.next.max(number);
    }

    fn mark(&mut self, number: u64, seen: bool) {
        let (word, bit) = ((number % WINDOW / 64) as usize, 1 << (number % 64));
        if seen {
            self.seen[word] |= bit;
        } else {
            self.seen[word] &= !bit;
        }
    }

    fn has_seen(&self, number: u64) -> bool {
        self.seen[(number % WINDOW / 64) as usize] & 1 << (number % 64) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(numbers: &[u64]) -> Counts {
        let mut tally = Tally::new();
        for &number in numbers {
            tally.arrived(Some(number));
        }
        tally.counts
    }

    #[test]
    fn each_frame_is_counted_once() {
        assert_eq!(counts(&[0, 1, 2, 3]), Counts::default());
        assert_eq!(counts(&[0, 1, 4]), Counts { lost: 2, ..Counts::default() });
        assert_eq!(counts(&[0, 1, 0, 1, 2]), Counts { doubled: 2, ..Counts::default() });
        assert_eq!(counts(&[0, 2, 1, 3]), Counts { late: 1, ..Counts::default() });
        assert_eq!(counts(&[0, 2, 1, 1]), Counts { late: 1, doubled: 1, ..Counts::default() });
        let long: Vec<_> = (0..3 * WINDOW).collect();
        assert_eq!(counts(&long), Counts::default());
    }

    #[test]
    fn given_up_frames_are_lost_or_late() {
        let mut tally = Tally::new();
        tally.arrived(Some(0));
        tally.give_up(3);
        assert_eq!(tally.counts.lost, 2);
        tally.arrived(Some(2));
        tally.arrived(Some(3));
        assert_eq!(tally.counts, Counts { lost: 1, late: 1, ..Counts::default() });
        tally.arrived(None);
        assert_eq!(tally.counts.corrupted, 1);
    }
}
