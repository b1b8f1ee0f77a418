//! Limits the rate of a source by a token bucket.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// Maximum number of the newest dropped bytes that are kept. They may be the last words of a
/// program that ends.
const TAIL: usize = 4096;

/// A rate, and how much may exceed it at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateLimit {
    /// Bytes per second.
    pub rate: u64,
    /// Bytes that may come at once after a silence.
    pub burst: u64,
}

impl RateLimit {
    /// 1 MiB/s with a burst of 1 MiB.
    pub const DEFAULT: Self = Self { rate: 1 << 20, burst: 1 << 20 };
}

/// Passes bytes on up to a rate.
///
/// When the bucket is empty, bytes are dropped until it is a quarter full, so that a source that is
/// always too fast gets few notices.
#[derive(Debug)]
pub struct Limiter {
    limit: RateLimit,
    /// Bytes that may pass now.
    tokens: u64,
    /// Time up to which the tokens are counted.
    counted: Instant,
    dropping: Option<Dropped>,
}

/// Bytes that did not pass.
#[derive(Debug, Default)]
struct Dropped {
    bytes: u64,
    /// The newest of them.
    tail: VecDeque<u8>,
}

impl Limiter {
    /// Creates a limiter whose bucket is full.
    pub fn new(limit: RateLimit, now: Instant) -> Self {
        Self { limit, tokens: limit.burst, counted: now, dropping: None }
    }

    /// Appends to `passed` what may pass of `bytes`, and notices about what has not.
    pub fn pass(&mut self, bytes: &[u8], now: Instant, passed: &mut Vec<u8>) {
        self.settle(now, passed);
        let take =
            if self.dropping.is_some() { 0 } else { usize::try_from(self.tokens).unwrap_or(usize::MAX) };
        let (now, dropped) = bytes.split_at(take.min(bytes.len()));
        passed.extend_from_slice(now);
        self.tokens -= now.len() as u64;
        if !dropped.is_empty() {
            self.dropping.get_or_insert_default().add(dropped);
        }
    }

    /// Ends the dropping if the bucket is full enough again.
    pub fn settle(&mut self, now: Instant, passed: &mut Vec<u8>) {
        self.refill(now);
        if self.tokens >= self.limit.burst / 4 {
            self.finish(passed);
        }
    }

    /// Ends the dropping at once: appends a notice and the newest dropped bytes to `passed`.
    pub fn finish(&mut self, passed: &mut Vec<u8>) {
        let Some(dropped) = self.dropping.take() else { return };
        let before = passed.len();
        let lost = dropped.bytes - dropped.tail.len() as u64;
        if lost > 0 {
            let rate = rate_text(self.limit.rate);
            passed.extend_from_slice(
                format!("\r\n[taut: {lost} bytes dropped: more than {rate}]\r\n").as_bytes(),
            );
        }
        passed.extend(&dropped.tail);
        self.tokens = self.tokens.saturating_sub((passed.len() - before) as u64);
    }

    /// Returns the time at which the dropping ends.
    pub fn due(&self) -> Option<Instant> {
        self.dropping.as_ref()?;
        let missing = (self.limit.burst / 4).saturating_sub(self.tokens);
        let nanos = u128::from(missing) * 1_000_000_000 / u128::from(self.limit.rate.max(1)) + 1;
        Some(self.counted + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }

    fn refill(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.counted).as_nanos();
        let gained = elapsed * u128::from(self.limit.rate) / 1_000_000_000;
        if gained > 0 {
            let gained = u64::try_from(gained).unwrap_or(u64::MAX);
            self.tokens = self.tokens.saturating_add(gained).min(self.limit.burst);
            self.counted = now;
        }
    }
}

impl Dropped {
    fn add(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.tail.extend(&bytes[bytes.len().saturating_sub(TAIL)..]);
        self.tail.drain(..self.tail.len().saturating_sub(TAIL));
    }
}

fn rate_text(rate: u64) -> String {
    if rate.is_multiple_of(1 << 20) { format!("{} MiB/s", rate >> 20) } else { format!("{rate} B/s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: RateLimit = RateLimit { rate: 1000, burst: 40_000 };

    #[test]
    fn a_burst_passes_and_what_follows_is_dropped_but_its_end() {
        let begin = Instant::now();
        let mut limiter = Limiter::new(LIMIT, begin);
        let mut passed = Vec::new();
        limiter.pass(&vec![b'a'; 40_000], begin, &mut passed);
        assert_eq!((passed.len(), limiter.due()), (40_000, None));
        passed.clear();
        limiter.pass(&vec![b'b'; 20_000], begin, &mut passed);
        limiter.pass(b"the end", begin, &mut passed);
        assert!(passed.is_empty());
        // A quarter of the bucket takes ten seconds.
        let due = limiter.due().unwrap();
        assert!(due > begin + Duration::from_secs(9) && due < begin + Duration::from_secs(11));
        limiter.settle(begin + Duration::from_secs(9), &mut passed);
        assert!(passed.is_empty());
        limiter.pass(b"more", due, &mut passed);
        let text = String::from_utf8(passed).unwrap();
        let (notice, rest) = text.trim_start().split_once("\r\n").unwrap();
        assert_eq!(notice, "[taut: 15911 bytes dropped: more than 1000 B/s]");
        assert!(rest.len() == TAIL + 4 && rest.ends_with("bbthe endmore"), "{rest}");
        assert_eq!(limiter.due(), None);
    }

    #[test]
    fn what_is_dropped_is_told_at_the_end_and_little_of_it_is_not_lost() {
        let begin = Instant::now();
        let mut limiter = Limiter::new(RateLimit { rate: 1 << 20, burst: 4 }, begin);
        let mut passed = Vec::new();
        limiter.pass(b"abcdefg", begin, &mut passed);
        assert_eq!(passed, b"abcd");
        limiter.finish(&mut passed);
        assert_eq!(passed, b"abcdefg", "nothing is lost, so there is no notice");
        limiter.finish(&mut passed);
        assert_eq!(passed.len(), 7);
    }

    #[test]
    fn a_source_that_is_always_too_fast_passes_its_rate_with_few_notices() {
        let begin = Instant::now();
        let mut limiter = Limiter::new(RateLimit::DEFAULT, begin);
        let mut passed = Vec::new();
        let flood = vec![b'x'; 65_536];
        for turn in 0..10_000 {
            limiter.pass(&flood, begin + Duration::from_millis(turn), &mut passed);
        }
        let mib = passed.len() as f64 / f64::from(1 << 20);
        assert!((10.5..11.5).contains(&mib), "{mib} MiB in ten seconds");
        let notices = passed.windows(7).filter(|bytes| *bytes == b"[taut: ").count();
        assert!((30..60).contains(&notices), "{notices} notices");
    }
}
