//! The share of the event log that each subject has, so that one that is noisy evicts only its own
//! events: a VM whose link goes up and down all the time, or a guest that provokes warnings.

use std::collections::HashMap;

/// Events that a subject may add at once.
const BURST: f64 = 200.0;
/// Events a second that it may add for a long time.
const RATE: f64 = 10.0;

/// How fast each subject adds events.
#[derive(Debug, Default)]
pub(super) struct Rates(HashMap<String, Rate>);

#[derive(Debug)]
struct Rate {
    /// Events that the subject may add now.
    left: f64,
    /// Time of the last event, in milliseconds.
    at_ms: u64,
    /// Events that were left out since the last report.
    left_out: u64,
}

impl Rates {
    /// Counts an event. Returns `false` if it is to be left out.
    pub(super) fn admit(&mut self, subject: &str, at_ms: u64) -> bool {
        if !self.0.contains_key(subject) {
            // A subject that has been silent has its whole burst again.
            self.0.retain(|_, rate| rate.left_out > 0 || rate.gained(at_ms) < BURST);
        }
        let rate = self.0.entry(subject.to_owned()).or_insert(Rate { left: BURST, at_ms, left_out: 0 });
        rate.left = rate.gained(at_ms);
        rate.at_ms = at_ms;
        if rate.left < 1.0 {
            rate.left_out += 1;
            return false;
        }
        rate.left -= 1.0;
        true
    }

    /// Returns the subjects of which events were left out and that may add some again, each with
    /// the number of events.
    pub(super) fn take_left_out(&mut self, at_ms: u64) -> Vec<(String, u64)> {
        let mut told = Vec::new();
        for (subject, rate) in &mut self.0 {
            if rate.left_out > 0 && rate.gained(at_ms) >= 1.0 {
                told.push((subject.clone(), std::mem::take(&mut rate.left_out)));
            }
        }
        told
    }
}

impl Rate {
    fn gained(&self, at_ms: u64) -> f64 {
        let seconds = at_ms.saturating_sub(self.at_ms) as f64 / 1000.0;
        (self.left + RATE * seconds).min(BURST)
    }
}

/// Number of stored events of each subject.
#[derive(Debug)]
pub(super) struct Counts {
    of: HashMap<String, u64>,
    total: u64,
}

impl Counts {
    pub(super) fn new(of: HashMap<String, u64>) -> Self {
        Self { total: of.values().sum(), of }
    }

    /// Notes a stored event.
    pub(super) fn add(&mut self, subject: &str) {
        *self.of.entry(subject.to_owned()).or_default() += 1;
        self.total += 1;
    }

    /// Returns the subject that loses its oldest event, if there are more than `most` in all: the
    /// one that has the most.
    pub(super) fn loser(&self, most: u64) -> Option<String> {
        let longest = || self.of.iter().max_by_key(|(_, count)| **count);
        (self.total > most).then(longest)?.map(|(subject, _)| subject.clone())
    }

    /// Notes that an event of a subject was deleted.
    pub(super) fn remove(&mut self, subject: &str) {
        self.total = self.total.saturating_sub(1);
        if let Some(count) = self.of.get_mut(subject) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.of.remove(subject);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_noisy_subject_is_limited_and_others_are_not() {
        let mut rates = Rates::default();
        let admitted = |rates: &mut Rates, subject, at_ms, count| {
            (0..count).filter(|_| rates.admit(subject, at_ms)).count()
        };
        assert_eq!(admitted(&mut rates, "vm/a", 0, 1000), 200);
        assert_eq!(admitted(&mut rates, "vm/b", 0, 3), 3);
        assert!(rates.take_left_out(50).is_empty(), "it may not add one yet");
        assert_eq!(rates.take_left_out(1000), [("vm/a".to_owned(), 800)]);
        assert_eq!(admitted(&mut rates, "vm/a", 1000, 100), 10);
        assert_eq!(admitted(&mut rates, "vm/a", 60_000, 1000), 200);
        // Subjects that were silent for long are forgotten.
        assert!(rates.admit("vm/c", 600_000));
        assert_eq!(rates.0.len(), 2, "vm/a has events to report");
    }

    #[test]
    fn the_subject_with_the_most_events_loses_its_oldest() {
        let mut counts = Counts::new(HashMap::from([("vm/a".to_owned(), 3), ("vm/b".to_owned(), 5)]));
        assert_eq!(counts.loser(8), None);
        counts.add("vm/a");
        assert_eq!(counts.loser(8).as_deref(), Some("vm/b"));
        counts.remove("vm/b");
        assert_eq!(counts.loser(8), None);
    }
}
