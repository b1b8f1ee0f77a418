//! A token bucket by virtual scheduling: what was sent is kept as the time that it takes to pay for
//! it.
//!
//! The *backlog* is the time until the bucket is full again; it runs down with the clock. A frame
//! costs the time that its bits take at the bucket's rate. A frame conforms if the backlog leaves
//! room for it in the *depth* (the burst, expressed as a time too), or if the backlog is at most
//! [`TOLERANCE`]. The second condition has three effects:
//!
//! * A bucket without depth paces frame by frame.
//! * A frame longer than the depth passes, once everything before it has been paid.
//! * A worker that comes back late makes up for it, so the long-run rate does not depend on timers.
//!
//! For frames of at most `f` bytes, an interval of `t` seconds therefore carries at most
//! `rate × t + max(depth, rate × TOLERANCE + f)`.
//! A sender that always has a frame waiting gets `rate`, within 0.02 % even for 64 bytes at
//! 100 Gbit/s, as long as the worker is never later than [`TOLERANCE`].

use std::time::{Duration, Instant};

use taut_api::units::BitRate;

/// Tolerated backlog of any bucket. A worker may be this late without loss of rate.
pub const TOLERANCE: Duration = Duration::from_millis(2);

/// [`TOLERANCE`] in picoseconds. A byte takes 80 ps at 100 Gbit/s and 8 × 10⁹ ps at 1 kbit/s.
const TOLERANCE_PS: u64 = TOLERANCE.as_nanos() as u64 * PS_PER_NS;
const PS_PER_NS: u64 = 1000;
/// Number of fraction bits in the price of a byte, which is exact to 10⁻⁹ even at 100 Gbit/s.
const FRACTION: u32 = 24;
/// Largest depth, as a time: 53 days. A longer burst would hardly ever end.
const MAX_DEPTH_PS: u64 = u64::MAX / 4;

/// A token bucket.
#[derive(Debug, Clone)]
pub struct Bucket {
    /// Price of a byte in picoseconds, with [`FRACTION`] fraction bits.
    price: u64,
    /// Largest backlog at which nothing waits, in picoseconds.
    depth: u64,
    /// Backlog in picoseconds, as of `at`.
    backlog: u64,
    /// Time at which `backlog` was computed.
    at: Instant,
}

impl Bucket {
    /// Creates a full bucket: `depth` bytes may be sent at once. The lowest rate is 1 kbit/s.
    pub fn new(rate: BitRate, depth: u64, now: Instant) -> Self {
        let price = (u128::from(PS_PER_NS * 8_000_000_000) << FRACTION) / u128::from(rate.0.max(1000));
        let mut bucket = Self { price: price as u64, depth: 0, backlog: 0, at: now };
        bucket.depth = bucket.cost(depth).min(MAX_DEPTH_PS);
        bucket
    }

    /// Changes rate and depth.
    ///
    /// Credit in bytes is carried over as far as the new depth holds it. Debt is forgiven, because
    /// at a low new rate it would take hours to pay. No more than the new burst can be sent at
    /// once.
    pub fn change(&mut self, rate: BitRate, depth: u64, now: Instant) {
        let old = self.backlog(now);
        let credit = self.bytes(self.depth.saturating_sub(old));
        // A bucket without depth has no credit in bytes; its backlog is carried over as a time.
        let mut new = Self::new(rate, depth, now);
        new.backlog = match self.depth {
            0 => old.min(TOLERANCE_PS),
            _ => new.depth.saturating_sub(new.cost(credit)),
        };
        *self = new;
    }

    /// The earliest time for a frame of `len` bytes; `None` means now.
    #[inline]
    pub fn conforms(&self, now: Instant, len: usize) -> Option<Instant> {
        let bound = self.depth.saturating_sub(self.cost(len as u64)).max(TOLERANCE_PS);
        let excess = self.backlog(now).saturating_sub(bound);
        // Round up, so that a sender that comes back then is not too early.
        (excess > 0).then(|| now + Duration::from_nanos(excess.div_ceil(PS_PER_NS)))
    }

    /// Charges a frame of `len` bytes, conforming or not.
    #[inline]
    pub fn spend(&mut self, now: Instant, len: usize) {
        self.backlog = self.backlog(now).saturating_add(self.cost(len as u64));
        self.at = self.at.max(now);
    }

    /// The backlog at `now`, in picoseconds.
    #[inline]
    fn backlog(&self, now: Instant) -> u64 {
        // Most frames of a burst share one time.
        if now <= self.at {
            return self.backlog;
        }
        let elapsed = now.saturating_duration_since(self.at).as_nanos();
        let elapsed = u64::try_from(elapsed).unwrap_or(u64::MAX).saturating_mul(PS_PER_NS);
        self.backlog.saturating_sub(elapsed)
    }

    /// The cost of `bytes`, in picoseconds.
    #[inline]
    fn cost(&self, bytes: u64) -> u64 {
        u64::try_from((u128::from(bytes) * u128::from(self.price)) >> FRACTION).unwrap_or(u64::MAX)
    }

    /// The bytes that cost `time` picoseconds.
    fn bytes(&self, time: u64) -> u64 {
        ((u128::from(time) << FRACTION) / u128::from(self.price.max(1))) as u64
    }
}

#[cfg(test)]
#[path = "bucket_tests.rs"]
mod tests;
