//! Latencies of one measurement as a histogram that can be written down and read again.

use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Largest latency in ns. A longer one is counted as this much.
const LONGEST: u64 = 100_000_000_000;
/// Largest count read for one value. It keeps sums far from overflow, whatever a guest claims.
const MOST: u64 = 1 << 32;
/// Significant decimal digits of a value.
const DIGITS: u8 = 3;

/// A histogram of latencies in nanoseconds, from 1 ns to 100 s, each exact to 0.1 %.
///
/// Serializes to an ascending list of `[nanoseconds, samples]`, which `jq` can read. Unlike
/// HdrHistogram's own encoding, it is safe to decode from a guest that lies.
#[derive(Clone, Serialize, Deserialize)]
#[serde(into = "Vec<(u64, u64)>", from = "Vec<(u64, u64)>")]
pub struct Latencies(Histogram<u64>);

impl PartialEq for Latencies {
    fn eq(&self, other: &Self) -> bool {
        self.counts().eq(other.counts())
    }
}

impl fmt::Debug for Latencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.counts()).finish()
    }
}

impl Default for Latencies {
    fn default() -> Self {
        Self::new()
    }
}

impl Latencies {
    /// Creates an empty histogram.
    pub fn new() -> Self {
        Self(Histogram::new_with_bounds(1, LONGEST, DIGITS).expect("the bounds are constants in range"))
    }

    /// Counts one sample.
    #[inline]
    pub fn record(&mut self, latency: Duration) {
        self.0.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX).max(1));
    }

    /// Adds all samples of `other`.
    pub fn add(&mut self, other: &Self) {
        self.0.add(&other.0).expect("both have the same bounds");
    }

    /// Returns (nanoseconds, samples) of every value that has samples, ascending.
    fn counts(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value()))
    }

    /// Returns the number of samples.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// Returns the probability that a sample of `self` exceeds one of `other`. Equal samples count
    /// half. The result is 0.5 if the two cannot be told apart, or if one is empty.
    pub fn chance_above(&self, other: &Self) -> f64 {
        let theirs: Vec<_> = other.counts().collect();
        let (mut below, mut at, mut sum) = (0, 0, 0.0);
        for (value, count) in self.counts() {
            while let Some((_, samples)) = theirs.get(at).filter(|(theirs, _)| *theirs < value) {
                (below, at) = (below + samples, at + 1);
            }
            let equal =
                theirs.get(at).filter(|(theirs, _)| *theirs == value).map_or(0, |(_, samples)| *samples);
            sum += count as f64 * (below as f64 + equal as f64 / 2.0);
        }
        let pairs = self.count() as f64 * other.count() as f64;
        if pairs > 0.0 { sum / pairs } else { 0.5 }
    }

    /// Returns the latency in µs that a share `quantile` (0.0 to 1.0) of the samples does not
    /// exceed; 0 without samples.
    pub fn quantile_us(&self, quantile: f64) -> f64 {
        self.0.value_at_quantile(quantile) as f64 / 1000.0
    }
}

impl From<Latencies> for Vec<(u64, u64)> {
    fn from(latencies: Latencies) -> Self {
        latencies.counts().collect()
    }
}

impl From<Vec<(u64, u64)>> for Latencies {
    fn from(counts: Vec<(u64, u64)>) -> Self {
        let mut latencies = Self::new();
        for (nanoseconds, samples) in counts {
            latencies.0.saturating_record_n(nanoseconds.max(1), samples.min(MOST));
        }
        latencies
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Latencies {
        let mut latencies = Latencies::new();
        (1..=1000).for_each(|us| latencies.record(Duration::from_micros(us)));
        latencies
    }

    #[track_caller]
    fn near(actual: f64, wanted: f64) {
        assert!((actual - wanted).abs() <= wanted * 0.001, "{actual} is not {wanted}");
    }

    #[test]
    fn percentiles_are_those_of_the_samples() {
        near(sample().quantile_us(0.5), 500.0);
        near(sample().quantile_us(0.999), 999.0);
        near(sample().quantile_us(1.0), 1000.0);
        assert_eq!(sample().count(), 1000);
        near(Latencies::new().quantile_us(0.5), 0.0);
    }

    #[test]
    fn samples_beyond_the_range_are_counted_at_its_ends() {
        let mut latencies = Latencies::new();
        latencies.record(Duration::ZERO);
        latencies.record(Duration::from_secs(3600));
        assert_eq!(latencies.count(), 2);
        near(latencies.quantile_us(1.0), 100e6);
    }

    #[test]
    fn latencies_are_the_same_after_json() {
        let text = serde_json::to_string(&sample()).unwrap();
        assert_eq!(serde_json::from_str::<Latencies>(&text).unwrap(), sample());
        let mut twice = sample();
        twice.add(&serde_json::from_str(&text).unwrap());
        assert_eq!(twice.count(), 2000);
    }

    #[test]
    fn chance_above_tells_longer_latencies() {
        let of = |counts: &[(u64, u64)]| Latencies::from(counts.to_vec());
        let (low, high) = (of(&[(10, 3), (20, 1)]), of(&[(20, 1), (30, 3)]));
        near(high.chance_above(&low), (15.5) / 16.0);
        near(low.chance_above(&high), 0.5 / 16.0);
        near(low.chance_above(&low), 0.5);
        near(low.chance_above(&Latencies::new()), 0.5);
    }

    #[test]
    fn absurd_counts_are_clamped() {
        let text = format!("[[0, 5], [{0}, {0}], [7, {0}], [7, {0}]]", u64::MAX);
        let latencies: Latencies = serde_json::from_str(&text).unwrap();
        assert_eq!(latencies.count(), 5 + 3 * MOST);
        assert!(latencies.quantile_us(1.0) >= latencies.quantile_us(0.5));
    }
}
