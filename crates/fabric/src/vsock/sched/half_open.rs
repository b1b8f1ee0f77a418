//! The watch over requests that nobody answers.

use std::time::{Duration, Instant};

use crate::vsock::proto::{Connection, HALF_OPEN_TIMEOUT, State};

/// Interval at which unanswered requests are looked at.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// The half-open connections of all guests.
#[derive(Debug)]
pub(crate) struct HalfOpen {
    /// Number of connections that nobody has accepted.
    pub(crate) count: usize,
    swept: Instant,
}

impl HalfOpen {
    pub(crate) fn new(now: Instant) -> Self {
        Self { count: 0, swept: now }
    }

    /// Time of the next sweep, if there is anything to look at.
    pub(crate) fn next_sweep(&self) -> Option<Instant> {
        (self.count > 0).then(|| self.swept + SWEEP_INTERVAL)
    }

    /// Tells whether a sweep is due, and notes that it takes place.
    pub(crate) fn sweep_is_due(&mut self, now: Instant) -> bool {
        let due = self.count > 0 && now.duration_since(self.swept) >= SWEEP_INTERVAL;
        if due {
            self.swept = now;
        }
        due
    }

    /// Tells whether a connection has waited too long for an answer.
    pub(crate) fn has_expired(connection: &Connection, now: Instant) -> bool {
        let waited = now.saturating_duration_since(connection.since);
        connection.state == State::Requested && waited >= HALF_OPEN_TIMEOUT
    }
}
