//! Token buckets, in the sense of rate limits: so many at once, and so many each second.

use std::time::{Duration, Instant};

/// Size and rate of a bucket.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Limit {
    /// Number that may come at once.
    pub(super) burst: f64,
    /// Number that may come in a second for long.
    pub(super) per_second: f64,
}

/// State of a bucket: its size, less what was taken lately.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bucket {
    level: f64,
    at: Instant,
}

impl Bucket {
    /// Returns a full bucket.
    pub(super) const fn full(limit: Limit, now: Instant) -> Self {
        Self { level: limit.burst, at: now }
    }

    /// Takes one. If there is none, returns the time until there is.
    pub(super) fn take(&mut self, limit: Limit, now: Instant) -> Result<(), Duration> {
        self.fill(limit, now);
        if self.level >= 1.0 {
            self.level -= 1.0;
            Ok(())
        } else {
            Err(Duration::from_secs_f64((1.0 - self.level) / limit.per_second))
        }
    }

    /// Returns whether it is full, so that a new one is as good.
    pub(super) fn is_full(&mut self, limit: Limit, now: Instant) -> bool {
        self.fill(limit, now);
        self.level >= limit.burst
    }

    fn fill(&mut self, limit: Limit, now: Instant) {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.level = (self.level + passed * limit.per_second).min(limit.burst);
        self.at = self.at.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Limit = Limit { burst: 10.0, per_second: 5.0 };

    #[test]
    fn a_burst_passes_and_then_the_rate() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut bucket = Bucket::full(LIMIT, start);
        let passed = (0..100).filter(|_| bucket.take(LIMIT, start).is_ok()).count();
        assert_eq!(passed, 10);
        assert_eq!(bucket.take(LIMIT, start), Err(Duration::from_millis(200)));
        assert!(bucket.take(LIMIT, at(100)).is_err() && bucket.take(LIMIT, at(200)).is_ok());
        let passed = (0..10_000).filter(|n| bucket.take(LIMIT, at(200 + n)).is_ok()).count();
        assert!((49..=51).contains(&passed), "{passed} in ten seconds");
    }

    #[test]
    fn a_clock_that_stands_or_goes_back_gives_nothing() {
        let start = Instant::now() + Duration::from_secs(60);
        let mut bucket = Bucket::full(LIMIT, start);
        while bucket.take(LIMIT, start).is_ok() {}
        assert!(bucket.take(LIMIT, start.checked_sub(Duration::from_secs(60)).unwrap()).is_err());
        assert!(bucket.take(LIMIT, start).is_err(), "the time back is not counted twice");
        assert!(!bucket.is_full(LIMIT, start));
        assert!(bucket.is_full(LIMIT, start + Duration::from_secs(2)));
    }
}
