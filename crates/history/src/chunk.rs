//! Samples, and several of them as bytes.
//!
//! A sample is stored as what has changed since the one before: the time in ms, the number of
//! counters that have grown, and for each of these its number (one byte) and by how much. All but
//! the numbers of counters are variable-length integers. The first sample counts from zero.

use integer_encoding::VarInt as _;

use crate::thinning::MAX_SAMPLES;
use crate::values::Values;

/// Most bytes of a variable-length integer.
const MAX_NUMBER_BYTES: usize = 10;

/// The totals of a subject at one position.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Sample {
    /// The position; see [`crate::timeline`].
    pub(crate) at: u64,
    /// The totals.
    pub(crate) totals: Values,
}

/// Bytes that are no chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("these bytes hold no samples: they end early, or hold more than {MAX_SAMPLES}")]
pub(crate) struct Damaged;

/// A chunk that grows.
#[derive(Debug, Clone)]
pub(crate) struct Chunk {
    first: u64,
    /// All samples but the last one, which may still move.
    bytes: Vec<u8>,
    count: usize,
    /// The last sample in `bytes`.
    stored: Sample,
    last: Sample,
    /// The last two samples have the same totals.
    rests: bool,
}

impl Chunk {
    /// Begins a chunk.
    pub(crate) fn begin(sample: Sample) -> Self {
        let stored = Sample::default();
        Self { first: sample.at, bytes: Vec::new(), count: 0, stored, last: sample, rests: false }
    }

    /// Adds a sample, which is not before the last one. If the last two have the same totals as it,
    /// the last one moves to its position instead, and false is returned: the two samples at the
    /// ends of a rest say that nothing was counted between them.
    pub(crate) fn add(&mut self, at: u64, totals: &Values) -> bool {
        let is_same = self.last.totals == *totals;
        if is_same && self.rest(at) {
            return false;
        }
        append(&mut self.bytes, &self.stored, &self.last);
        self.count += 1;
        std::mem::swap(&mut self.stored, &mut self.last);
        self.last.at = at;
        self.last.totals.clone_from(totals);
        self.rests = is_same;
        true
    }

    /// Moves the last sample to the position `at` after it, if the last two samples have the same
    /// totals. Returns whether they have. The caller knows that the totals at `at` are the same.
    /// They are not compared.
    pub(crate) fn rest(&mut self, at: u64) -> bool {
        if self.rests {
            self.last.at = at;
        }
        self.rests
    }

    /// Returns whether it has so many samples, or more.
    pub(crate) fn has(&self, samples: usize) -> bool {
        self.count + 1 >= samples
    }

    /// Returns the position of the first sample.
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// Returns the last sample.
    pub(crate) fn last(&self) -> &Sample {
        &self.last
    }

    /// Returns the bytes of all samples.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        append(&mut bytes, &self.stored, &self.last);
        bytes
    }
}

/// Appends a sample, as what has changed since the one before.
fn append(bytes: &mut Vec<u8>, before: &Sample, sample: &Sample) {
    append_number(bytes, sample.at.saturating_sub(before.at));
    append_number(bytes, sample.totals.growth_since(&before.totals).count() as u64);
    for (number, increment) in sample.totals.growth_since(&before.totals) {
        bytes.push(number);
        append_number(bytes, increment);
    }
}

fn append_number(bytes: &mut Vec<u8>, number: u64) {
    let mut encoded = [0; MAX_NUMBER_BYTES];
    let len = number.encode_var(&mut encoded);
    bytes.extend_from_slice(&encoded[..len]);
}

/// Returns the samples of a chunk.
pub(crate) fn decode(mut bytes: &[u8]) -> Result<Vec<Sample>, Damaged> {
    let mut samples: Vec<Sample> = Vec::new();
    let mut sample = Sample::default();
    while !bytes.is_empty() {
        if samples.len() == MAX_SAMPLES {
            return Err(Damaged);
        }
        sample.at = sample.at.checked_add(number(&mut bytes)?).ok_or(Damaged)?;
        for _ in 0..number(&mut bytes)? {
            let (counter, rest) = bytes.split_first().ok_or(Damaged)?;
            bytes = rest;
            let total = sample.totals.get(*counter).checked_add(number(&mut bytes)?).ok_or(Damaged)?;
            sample.totals.set(*counter, total);
        }
        samples.push(sample.clone());
    }
    Ok(samples)
}

/// Takes an integer off the bytes.
fn number(bytes: &mut &[u8]) -> Result<u64, Damaged> {
    let (number, len) = u64::decode_var(bytes).ok_or(Damaged)?;
    *bytes = &bytes[len..];
    Ok(number)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sample(at: u64, counters: &[(u8, u64)]) -> Sample {
        Sample { at, totals: Values::new(counters.iter().copied()) }
    }

    #[test]
    fn samples_come_back_and_rest_takes_two() {
        let mut chunk = Chunk::begin(sample(1000, &[(1, 5)]));
        let resting = Values::new([(1, 6), (200, u64::MAX)]);
        assert!(chunk.add(2000, &resting));
        assert!(chunk.add(3000, &resting), "the rest begins");
        for at in [4000, 5000, 6000] {
            assert!(!chunk.add(at, &resting));
        }
        assert!(chunk.add(7000, &Values::new([(1, 7), (200, u64::MAX)])));
        let samples = decode(&chunk.encode()).unwrap();
        assert_eq!(samples.iter().map(|sample| sample.at).collect::<Vec<_>>(), [1000, 2000, 6000, 7000]);
        assert_eq!(samples[1], sample(2000, &[(1, 6), (200, u64::MAX)]));
        assert_eq!((samples.last(), chunk.first()), (Some(chunk.last()), 1000));
    }

    #[test]
    fn a_busy_port_takes_few_bytes() {
        // 13 counters, of which two count bytes at 10 Gbit/s.
        let at = |second: u64| {
            let slow = (0..11).map(|number| (number, 100_000 * second));
            let fast = (11..13).map(|number| (number, 1_250_000_000 * second));
            Sample { at: 1000 * second, totals: Values::new(slow.chain(fast)) }
        };
        let mut chunk = Chunk::begin(at(1_000_000));
        for second in 1..MAX_SAMPLES as u64 {
            assert!(!chunk.has(MAX_SAMPLES));
            let Sample { at, totals } = at(1_000_000 + second);
            chunk.add(at, &totals);
        }
        assert!(chunk.has(MAX_SAMPLES));
        let bytes = chunk.encode();
        assert_eq!(decode(&bytes).unwrap().len(), MAX_SAMPLES);
        assert!(bytes.len() / MAX_SAMPLES < 64, "{} bytes a sample", bytes.len() / MAX_SAMPLES);
    }

    #[test]
    fn bytes_that_end_early_are_refused() {
        let mut chunk = Chunk::begin(sample(1, &[(1, 1 << 40)]));
        chunk.add(2, &Values::new([(1, 1 << 41)]));
        let bytes = chunk.encode();
        assert_eq!(decode(&bytes[..bytes.len() - 1]), Err(Damaged));
        assert_eq!(decode(&[0x80]), Err(Damaged));
        assert_eq!(decode(&[0; 2 * MAX_SAMPLES + 1]), Err(Damaged), "too many");
    }

    proptest! {
        #[test]
        fn any_bytes_are_samples_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            if let Ok(samples) = decode(&bytes) {
                prop_assert!(samples.len() <= MAX_SAMPLES);
                prop_assert!(samples.is_sorted_by_key(|sample| sample.at));
            }
        }
    }
}
