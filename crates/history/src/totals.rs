//! Totals that never go back, from readings that may.
//!
//! A counter begins at zero again when its port gets another owner or the host boots. What it had
//! counted before stays in the total. A counter that a reading lacks has not begun again: its total
//! stays as it was, and goes on with the next reading that has it.

use crate::reading::Reading;
use crate::values::Values;

/// The totals of a subject.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Sum of the counters' earlier runs.
    earlier: Values,
    /// The totals at the last reading.
    last: Values,
}

/// Result of a reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Read {
    /// The totals are the same as before.
    Same,
    /// The totals have grown.
    Grown,
    /// A counter had begun again at zero. The totals may have grown.
    BegunAgain,
}

impl Totals {
    /// Continues totals: `earlier` as from [`Totals::earlier`], and the last totals.
    pub(crate) fn resume(earlier: Values, last: Values) -> Self {
        Self { earlier, last }
    }

    /// Returns the sum of the counters' earlier runs, with which a later process continues.
    pub(crate) fn earlier(&self) -> &Values {
        &self.earlier
    }

    /// Returns the totals at the last reading.
    pub(crate) fn last(&self) -> &Values {
        &self.last
    }

    /// Takes a reading.
    pub(crate) fn read(&mut self, reading: &Reading) -> Read {
        // Most readings of an idle subject are as the last one.
        let counted = reading.iter().filter(|&(_, value)| value > 0);
        if self.earlier == Values::default() && counted.eq(self.last.iter()) {
            return Read::Same;
        }
        let (mut has_begun_again, mut is_same) = (false, true);
        for (number, value) in reading.iter() {
            let (before, mut earlier) = (self.last.get(number), self.earlier.get(number));
            if value < before.saturating_sub(earlier) {
                earlier = before;
                self.earlier.set(number, earlier);
                has_begun_again = true;
            }
            let total = value.saturating_add(earlier);
            if total != before {
                self.last.set(number, total);
                is_same = false;
            }
        }
        match (has_begun_again, is_same) {
            (true, _) => Read::BegunAgain,
            (false, true) => Read::Same,
            (false, false) => Read::Grown,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_counter_that_begins_again_goes_on_from_its_total() {
        let mut totals = Totals::default();
        assert_eq!(totals.read(&Reading::new([(1, 100), (2, 5)])), Read::Grown);
        assert_eq!(totals.read(&Reading::new([(1, 100), (2, 5)])), Read::Same);
        assert_eq!(totals.read(&Reading::new([(1, 30), (2, 6)])), Read::BegunAgain, "the first one");
        assert_eq!(totals.last(), &Values::new([(1, 130), (2, 6)]));
        assert_eq!(totals.read(&Reading::new([(1, 31), (2, 6)])), Read::Grown);
        assert_eq!(totals.read(&Reading::new([(1, 31), (2, 6)])), Read::Same);
        assert_eq!(totals.last(), &Values::new([(1, 131), (2, 6)]));
        let mut resumed = Totals::resume(totals.earlier().clone(), totals.last().clone());
        let read = resumed.read(&Reading::new([(1, 0), (2, 0)]));
        assert_eq!(read, Read::BegunAgain, "both, and they have counted nothing yet");
        assert_eq!(resumed.last(), &Values::new([(1, 131), (2, 6)]));
        assert_eq!(resumed.read(&Reading::new([(1, 1)])), Read::Grown);
        assert_eq!(resumed.last(), &Values::new([(1, 132), (2, 6)]));
    }

    #[test]
    fn a_counter_that_a_reading_lacks_goes_on_and_one_that_is_zero_begins_again() {
        let mut totals = Totals::default();
        totals.read(&Reading::new([(1, 100), (2, 5)]));
        assert_eq!(totals.read(&Reading::default()), Read::Same);
        assert_eq!(totals.read(&Reading::new([(2, 6)])), Read::Grown);
        assert_eq!(totals.read(&Reading::new([(2, 6), (1, 103)])), Read::Grown);
        assert_eq!(totals.last(), &Values::new([(1, 103), (2, 6)]), "the first one counts once");
        assert_eq!(totals.read(&Reading::new([(1, 0), (2, 6)])), Read::BegunAgain);
        assert_eq!(totals.read(&Reading::new([(1, 200), (2, 6)])), Read::Grown);
        assert_eq!(totals.last(), &Values::new([(1, 303), (2, 6)]));
        // A counter that is absent after it has begun again keeps its earlier runs.
        assert_eq!(totals.read(&Reading::new([(2, 1)])), Read::BegunAgain, "the second one");
        assert_eq!(totals.read(&Reading::new([(1, 201), (2, 1)])), Read::Grown);
        assert_eq!(totals.last(), &Values::new([(1, 304), (2, 7)]));
    }

    proptest! {
        /// Totals are what was counted in all runs, as far as readings have seen it.
        #[test]
        fn totals_are_the_sum_of_all_runs(
            runs in prop::collection::vec(prop::collection::vec(1_u64..1000, 1..5), 1..6),
        ) {
            let mut totals = Totals::default();
            let (mut expected, mut before) = (0, None);
            for run in &runs {
                let mut counter = 0;
                for step in run {
                    // A run that has already counted as much as the one before looks the same.
                    let step = before.take().map_or(*step, |before: u64| before.saturating_sub(1).min(*step));
                    counter += step;
                    expected += step;
                    totals.read(&Reading::new([(9, counter)]));
                    prop_assert_eq!(totals.last().get(9), expected);
                }
                before = Some(counter).filter(|counter| *counter > 0);
            }
        }
    }
}
