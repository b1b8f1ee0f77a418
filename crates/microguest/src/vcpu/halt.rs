//! How long a vCPU without work looks around before it sleeps: as KVM does it (`halt_poll_ns`), longer where sleeps turn out short.

use std::time::{Duration, Instant};

/// The longest, and the first step towards it.
const LONGEST: Duration = Duration::from_micros(50);
const FIRST: Duration = Duration::from_micros(10);

/// The state of it.
#[derive(Debug, Default)]
pub(super) struct HaltPolling {
    window: Duration,
    idle_since: Option<Instant>,
}

impl HaltPolling {
    /// There was work.
    pub(super) fn worked(&mut self) {
        self.idle_since = None;
    }

    /// There is none at this moment: look once more, rather than sleep?
    pub(super) fn goes_on(&mut self, now: Instant) -> bool {
        now.saturating_duration_since(*self.idle_since.get_or_insert(now)) < self.window
    }

    /// It has slept for so long.
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
    fn short_sleeps_make_it_look_longer_and_a_long_one_ends_that() {
        let mut polling = HaltPolling::default();
        let now = Instant::now();
        assert!(!polling.goes_on(now), "at first it sleeps at once");
        polling.slept(Duration::from_micros(5));
        assert!(polling.goes_on(now) && polling.goes_on(now + Duration::from_micros(9)));
        assert!(!polling.goes_on(now + FIRST));
        for _ in 0..5 {
            polling.slept(Duration::from_micros(50));
        }
        assert!(polling.goes_on(now) && !polling.goes_on(now + LONGEST));
        polling.worked();
        assert!(polling.goes_on(now + LONGEST), "work begins it anew");
        polling.slept(Duration::from_millis(1));
        assert!(!polling.goes_on(now));
    }
}
