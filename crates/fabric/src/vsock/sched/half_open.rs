//! The watch over requests that nobody answers.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::vsock::proto::{ConnId, Connection, HALF_OPEN_TIMEOUT};

/// Interval at which unanswered requests are looked at.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// The half-open connections of all guests.
#[derive(Debug)]
pub(crate) struct HalfOpen {
    /// The connections that nobody has accepted, with the times of their requests.
    waiting: BTreeSet<(Instant, ConnId)>,
    swept: Instant,
}

impl HalfOpen {
    pub(crate) fn new(now: Instant) -> Self {
        Self { waiting: BTreeSet::new(), swept: now }
    }

    /// Adds a requested connection.
    pub(crate) fn add(&mut self, connection: &Connection) {
        self.waiting.insert((connection.since, connection.id));
    }

    /// Removes a connection that was answered, or is over.
    pub(crate) fn remove(&mut self, connection: &Connection) {
        self.waiting.remove(&(connection.since, connection.id));
    }

    /// Number of connections that nobody has accepted.
    #[cfg(any(test, feature = "rig"))]
    pub(crate) fn count(&self) -> usize {
        self.waiting.len()
    }

    /// Time of the next sweep, if there is anything to look at.
    pub(crate) fn next_sweep(&self) -> Option<Instant> {
        (!self.waiting.is_empty()).then(|| self.swept + SWEEP_INTERVAL)
    }

    /// Tells whether a sweep is due, and notes that it takes place.
    pub(crate) fn sweep_is_due(&mut self, now: Instant) -> bool {
        let due = !self.waiting.is_empty() && now.duration_since(self.swept) >= SWEEP_INTERVAL;
        if due {
            self.swept = now;
        }
        due
    }

    /// Takes a connection that has waited too long for an answer.
    pub(crate) fn take_expired(&mut self, now: Instant) -> Option<ConnId> {
        let &(since, id) = self.waiting.first()?;
        if now.saturating_duration_since(since) < HALF_OPEN_TIMEOUT {
            return None;
        }
        self.waiting.pop_first();
        Some(id)
    }
}
