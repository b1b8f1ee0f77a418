//! Times before which a failed operation is not tried again.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The time of the next attempt, by operation.
#[derive(Debug, Default)]
pub(super) struct Retries(BTreeMap<String, Instant>);

impl Retries {
    /// Returns whether an operation may be tried now: it never failed, or its pause is over.
    pub(super) fn is_due(&self, operation: &str) -> bool {
        self.0.get(operation).is_none_or(|at| *at <= Instant::now())
    }

    /// Returns whether an operation was never delayed.
    pub(super) fn is_new(&self, operation: &str) -> bool {
        !self.0.contains_key(operation)
    }

    /// Returns whether an operation may be tried now, and delays the first attempt of a new
    /// operation by `pause`.
    pub(super) fn is_due_after(&mut self, operation: &str, pause: Duration) -> bool {
        let now = Instant::now();
        *self.0.entry(operation.to_owned()).or_insert(now + pause) <= now
    }

    /// Delays the next attempt by `pause`.
    pub(super) fn delay(&mut self, operation: &str, pause: Duration) {
        self.0.insert(operation.to_owned(), Instant::now() + pause);
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
    }

    #[test]
    fn the_first_attempt_of_a_new_operation_can_be_delayed() {
        let mut retries = Retries::default();
        assert!(!retries.is_due_after("a", Duration::from_secs(3600)));
        assert!(retries.is_due_after("b", Duration::ZERO));
    }
}
