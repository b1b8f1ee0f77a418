//! Values that go up and down, as counters.
//!
//! The history has counters only, and averages of any period come from two samples of them. A value
//! such as memory in use becomes two counters: the sum of the value over time, and the time in
//! which somebody read it. The average of a period is the growth of the one, divided by that of the
//! other. Both begin at zero with each daemon, which the history takes as counters that began
//! again; so the time without a daemon is in neither of them.

use std::collections::{BTreeSet, HashMap};

use taut_history::Values;

/// Sums of all subjects, by key. Each sample looks them up, and a hash map reads the fewest keys
/// for that.
#[derive(Debug, Default)]
pub(super) struct Gauges(HashMap<String, Sums>);

/// Sums of one subject.
#[derive(Debug, Default)]
pub(super) struct Sums {
    /// Time of the last reading since the boot, in ms.
    last: Option<u64>,
    /// Time between the last two readings, in ms.
    ms: u64,
    values: Values,
}

impl Gauges {
    /// Begins a reading of a subject.
    pub(super) fn begin(&mut self, key: &str, since_boot: u64) -> &mut Sums {
        // Most readings are of subjects that are known.
        if !self.0.contains_key(key) {
            self.0.insert(key.to_owned(), Sums::default());
        }
        let sums = self.0.get_mut(key).expect("it was inserted");
        sums.ms = since_boot.saturating_sub(sums.last.unwrap_or(since_boot));
        sums.last = Some(since_boot);
        sums
    }

    /// Forgets all subjects but these.
    pub(super) fn keep(&mut self, keys: &BTreeSet<String>) {
        self.0.retain(|key, _| keys.contains(key));
    }
}

impl Sums {
    /// Adds a value times the seconds since the last reading. A value is in a unit in which parts
    /// of one can be neglected.
    pub(super) fn add(&mut self, number: u8, value: u64) {
        let sum = u128::from(value) * u128::from(self.ms) / 1000;
        self.grow(number, u64::try_from(sum).unwrap_or(0));
    }

    /// Adds the time since the last reading, in ms.
    pub(super) fn add_time(&mut self, number: u8) {
        self.grow(number, self.ms);
    }

    fn grow(&mut self, number: u8, by: u64) {
        self.values.grow_one(number, by);
    }

    /// Returns the sums with these numbers, also those that are still zero: each reading has all
    /// sums of its subject.
    pub(super) fn of<const N: usize>(&self, numbers: [u8; N]) -> [(u8, u64); N] {
        numbers.map(|number| (number, self.values.get(number)))
    }
}

/// Returns the average of a value within the growth of its sum and of its time; nothing if nobody
/// read it.
pub(super) fn average(growth: &Values, sum: u8, time: u8) -> Option<f64> {
    let ms = growth.get(time);
    (ms > 0).then(|| growth.per_second(sum, ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_are_over_the_time_in_which_the_value_was_read() {
        let mut gauges = Gauges::default();
        let read = |gauges: &mut Gauges, second: u64, value: u64| {
            let sums = gauges.begin("vm/a", 1000 * second);
            sums.add(7, value);
            sums.add_time(8);
            Values::new(sums.of([7, 8]))
        };
        assert_eq!(read(&mut gauges, 5, 1 << 40), Values::default(), "for how long is not known yet");
        read(&mut gauges, 6, 100);
        let all = read(&mut gauges, 9, 300);
        assert_eq!(all, Values::new([(7, 1000), (8, 4000)]));
        assert_eq!(average(&all, 7, 8), Some(250.0));
        assert_eq!(average(&Values::default(), 7, 8), None);
        gauges.keep(&BTreeSet::new());
        assert_eq!(read(&mut gauges, 10, 5), Values::default(), "the next one begins anew");
    }
}
