//! Times before which a failed operation is not tried again.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The time of the next attempt, by operation; `None` if there is none.
#[derive(Debug, Default)]
pub(super) struct Retries(BTreeMap<String, Option<Instant>>);

impl Retries {
    /// Returns whether an operation may be tried now: it never failed, or its pause is over.
    pub(super) fn is_due(&self, operation: &str) -> bool {
        self.0.get(operation).is_none_or(|at| at.is_some_and(|at| at <= Instant::now()))
    }

    /// Returns the time until the next pause is over; `None` if there is no pause. Pauses that were
    /// over at `since` do not count: nobody wants these operations any more.
    pub(super) fn until_next(&self, since: Instant) -> Option<Duration> {
        let next = self.0.values().flatten().filter(|at| **at > since).min()?;
        Some(next.saturating_duration_since(Instant::now()))
    }

    /// Returns whether an operation was never delayed.
    pub(super) fn is_new(&self, operation: &str) -> bool {
        !self.0.contains_key(operation)
    }

    /// Returns whether an operation may be tried now, and delays the first attempt of a new
    /// operation by `pause`.
    pub(super) fn is_due_after(&mut self, operation: &str, pause: Duration) -> bool {
        let now = Instant::now();
        self.0.entry(operation.to_owned()).or_insert(Some(now + pause)).is_some_and(|at| at <= now)
    }

    /// Delays the next attempt by `pause`.
    pub(super) fn delay(&mut self, operation: &str, pause: Duration) {
        self.0.insert(operation.to_owned(), Some(Instant::now() + pause));
    }

    /// Allows no other attempt.
    pub(super) fn give_up(&mut self, operation: &str) {
        self.0.insert(operation.to_owned(), None);
    }

    /// Forgets all operations whose names begin like this.
    pub(super) fn forget(&mut self, beginning: &str) {
        self.0.retain(|operation, _| !operation.starts_with(beginning));
    }

    /// Allows the next attempt at once.
    pub(super) fn reset(&mut self, operation: &str) {
        self.0.remove(operation);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_is_due_unless_it_was_delayed() {
        let mut retries = Retries::default();
        assert!(retries.is_due("a") && retries.is_new("a"));
        retries.delay("a", Duration::from_secs(3600));
        assert!(!retries.is_due("a") && !retries.is_new("a") && retries.is_due("b"));
        retries.reset("a");
        assert!(retries.is_due("a"));
        retries.give_up("a/1");
        retries.delay("b", Duration::ZERO);
        assert!(!retries.is_due("a/1") && !retries.is_new("a/1") && retries.is_due("b"));
        retries.forget("a/");
        assert!(retries.is_new("a/1") && !retries.is_new("b"));
    }

    #[test]
    fn pauses_that_are_over_or_have_no_end_are_not_waited_for() {
        let mut retries = Retries::default();
        retries.delay("a", Duration::ZERO);
        retries.give_up("b");
        let before = Instant::now();
        assert_eq!(retries.until_next(before), None);
        retries.delay("c", Duration::from_secs(3600));
        retries.delay("d", Duration::from_secs(60));
        let next = retries.until_next(before).unwrap();
        assert!(next <= Duration::from_secs(60) && next > Duration::from_secs(50));
        retries.delay("e", Duration::ZERO);
        assert_eq!(retries.until_next(before), Some(Duration::ZERO), "it became due meanwhile");
    }

    #[test]
    fn the_first_attempt_of_a_new_operation_can_be_delayed() {
        let mut retries = Retries::default();
        assert!(!retries.is_due_after("a", Duration::from_secs(3600)));
        assert!(retries.is_due_after("b", Duration::ZERO));
    }
}
