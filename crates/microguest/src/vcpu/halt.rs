//! Halt polling as in KVM (`halt_poll_ns`): how long a vCPU without work polls before it sleeps.
//! The time grows when sleeps turn out short.

use std::time::{Duration, Instant};

/// Longest time of polling before a sleep, as in KVM on x86. A sleep that lasts longer ends
/// polling. So the time has to be longer than a round trip in which two guests both sleep: with
/// 50 µs, neither of the two polled again after they had.
const LONGEST: Duration = Duration::from_micros(200);
/// Time of polling after the first short sleep.
const FIRST: Duration = Duration::from_micros(10);

/// The current time and state.
#[derive(Debug, Default)]
pub(super) struct HaltPolling {
    window: Duration,
    idle_since: Option<Instant>,
}

impl HaltPolling {
    /// Notes that there was work.
    pub(super) fn worked(&mut self) {
        self.idle_since = None;
    }

    /// Returns whether to poll once more instead of sleeping.
    pub(super) fn goes_on(&mut self, now: Instant) -> bool {
        now.saturating_duration_since(*self.idle_since.get_or_insert(now)) < self.window
    }

    /// Adapts to a sleep of this length.
    pub(super) fn slept(&mut self, duration: Duration) {
        self.idle_since = None;
        self.window =
            if duration > LONGEST { Duration::ZERO } else { (2 * self.window).clamp(FIRST, LONGEST) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_sleeps_lengthen_polling_and_a_long_sleep_ends_it() {
        let mut polling = HaltPolling::default();
        let now = Instant::now();
        assert!(!polling.goes_on(now), "at first it sleeps at once");
        polling.slept(Duration::from_micros(5));
        assert!(polling.goes_on(now) && polling.goes_on(now + Duration::from_micros(9)));
        assert!(!polling.goes_on(now + FIRST));
        for _ in 0..5 {
            polling.slept(LONGEST);
        }
        assert!(polling.goes_on(now) && !polling.goes_on(now + LONGEST));
        polling.worked();
        assert!(polling.goes_on(now + LONGEST), "work begins it anew");
        polling.slept(Duration::from_millis(1));
        assert!(!polling.goes_on(now));
    }
}
