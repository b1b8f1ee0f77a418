//! Buckets against a slow oracle that computes with rational numbers.

use proptest::prelude::*;

use super::*;

/// A textbook token bucket with rational numbers. A token is 10⁻⁹ bits, so that each nanosecond
/// adds exactly `rate` tokens. It is too slow and too wide for the data path.
struct Oracle {
    rate: i128,
    depth: i128,
    tokens: i128,
    at: Instant,
}

const UNIT: i128 = 8_000_000_000;

fn nanos(time: Duration) -> i128 {
    time.as_nanos().cast_signed()
}

impl Oracle {
    fn new(rate: BitRate, depth: u64, now: Instant) -> Self {
        let depth = i128::from(depth) * UNIT;
        Self { rate: rate.0.into(), depth, tokens: depth, at: now }
    }

    fn refill(&mut self, now: Instant) {
        let gained = nanos(now.duration_since(self.at)) * self.rate;
        self.tokens = self.depth.min(self.tokens + gained);
        self.at = now;
    }

    /// A frame conforms if there are enough tokens, or if the bucket lacks at most [`TOLERANCE`]'s
    /// worth. `slack` shifts the decision by that many nanoseconds' worth, to allow for rounding.
    fn conforms(&mut self, now: Instant, len: usize, slack: i128) -> bool {
        self.refill(now);
        let tolerated = nanos(TOLERANCE) * self.rate;
        let needed = (len as i128 * UNIT).min(self.depth - tolerated);
        self.tokens + slack * self.rate >= needed
    }

    fn spend(&mut self, len: usize) {
        self.tokens -= len as i128 * UNIT;
    }
}

fn rates() -> impl Strategy<Value = u64> {
    // Uniform over the orders of magnitude.
    (3.0..11.0_f64).prop_map(|exponent| 10_f64.powf(exponent) as u64)
}

fn lengths() -> impl Strategy<Value = usize> {
    prop_oneof![Just(64_usize), Just(1518), Just(65_549), 14..65_549_usize]
}

fn depths() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0_u64), Just(1), 0..4_000_000_u64, Just(1 << 40), Just(u64::MAX)]
}

/// Pauses from zero to hours.
fn pauses() -> impl Strategy<Value = Duration> {
    (0.0..44.0_f64).prop_map(|exponent| Duration::from_nanos(2_f64.powf(exponent) as u64))
}

/// Sends each frame as early as permitted, from `start` on, and returns the times.
fn greedy(bucket: &mut Bucket, start: Instant, len: usize, count: usize) -> Vec<Instant> {
    let mut now = start;
    (0..count)
        .map(|_| {
            if let Some(when) = bucket.conforms(now, len) {
                assert!(when > now);
                now = when;
            }
            bucket.spend(now, len);
            now
        })
        .collect()
}

proptest! {
    #[test]
    fn a_bucket_decides_as_the_oracle_does(
        rate in rates(), depth in 0..4_000_000_u64, steps in prop::collection::vec((pauses(), lengths()), 1..100),
    ) {
        let start = Instant::now();
        let mut bucket = Bucket::new(BitRate(rate), depth, start);
        let mut oracle = Oracle::new(BitRate(rate), depth, start);
        let mut now = start;
        for (pause, len) in steps {
            now += pause;
            // Each frame may be a picosecond too cheap; one nanosecond covers all of them.
            match bucket.conforms(now, len) {
                None => prop_assert!(oracle.conforms(now, len, 1)),
                Some(when) => {
                    prop_assert!(!oracle.conforms(now, len, -1));
                    prop_assert!(when > now);
                    now = when;
                    prop_assert!(bucket.conforms(now, len).is_none(), "a sender that comes back at the given time may send");
                    prop_assert!(oracle.conforms(now, len, 1));
                }
            }
            bucket.spend(now, len);
            oracle.spend(len);
        }
    }

    #[test]
    fn the_long_run_rate_is_exact_for_any_frame_length(rate in rates(), depth in depths(), len in lengths()) {
        let start = Instant::now();
        let depth = depth.min(500 * len as u64);
        let mut bucket = Bucket::new(BitRate(rate), depth, start);
        // Send the burst first; it does not count.
        let burst = greedy(&mut bucket, start, len, depth as usize / len + 2);
        let count = 500;
        let times = greedy(&mut bucket, burst[burst.len() - 1], len, count);
        let (first, last) = (times[0], times[count - 1]);
        let bits = (8 * len * (count - 1)) as f64;
        let seconds = last.duration_since(first).as_secs_f64();
        // The interval may contain what is tolerated ahead of time.
        let ahead = TOLERANCE.as_secs_f64() + (8 * len) as f64 / rate as f64;
        let ideal = bits / rate as f64;
        prop_assert!(seconds <= ideal * 1.000_001 + 1e-6, "{seconds} for {ideal}: too slow");
        prop_assert!(seconds >= ideal - ahead - 1e-6, "{seconds} for {ideal}: too fast");
    }

    #[test]
    fn a_late_worker_keeps_the_rate(rate in rates(), len in lengths(), late in prop::collection::vec(0..1_000_000_u64, 100)) {
        // Limit the frames per step to about a thousand, to bound the test's time.
        let len = len.max((rate / 4_000_000) as usize);
        let start = Instant::now();
        let mut bucket = Bucket::new(BitRate(rate), 0, start);
        let (mut now, mut frames) = (start, 0_u64);
        for late in late {
            // The worker is up to a millisecond late, and then sends everything that conforms.
            let mut sent = 0;
            let next = loop {
                match bucket.conforms(now, len) {
                    None => bucket.spend(now, len),
                    Some(when) => break when,
                }
                sent += 1;
            };
            frames += sent;
            prop_assert!(u128::from(sent - 1) * (8 * len) as u128 <= u128::from(rate) * 4_000_000 / 1_000_000_000);
            now = next + Duration::from_nanos(late);
        }
        let ideal = (8 * len) as f64 * frames as f64 / rate as f64;
        let seconds = now.duration_since(start).as_secs_f64();
        let slack = TOLERANCE.as_secs_f64() + 0.001 + (16 * len) as f64 / rate as f64;
        prop_assert!((seconds - ideal).abs() <= slack, "{frames} frames in {seconds} s, ideal {ideal} s");
    }

    #[test]
    fn no_interval_carries_more_than_burst_and_rate_allow(
        rate in rates(), depth in 0..1_000_000_u64, steps in prop::collection::vec((pauses(), lengths()), 2..200),
    ) {
        let start = Instant::now();
        let mut bucket = Bucket::new(BitRate(rate), depth, start);
        let mut now = start;
        let mut sent = Vec::new();
        for (pause, len) in steps {
            // Pauses of hours would hide violations.
            now += pause / 4096;
            if bucket.conforms(now, len).is_none() {
                bucket.spend(now, len);
                sent.push((now, len));
            }
        }
        let longest = sent.iter().map(|(_, len)| *len).max().unwrap_or(0) as f64;
        let tolerated = rate as f64 / 8.0 * TOLERANCE.as_secs_f64();
        let allowance = (depth as f64).max(tolerated + longest) + 1.0;
        for (index, (from, _)) in sent.iter().enumerate() {
            let mut bytes = 0.0;
            for (to, len) in &sent[index..] {
                bytes += *len as f64;
                let seconds = to.duration_since(*from).as_secs_f64();
                // A frame may be a picosecond too cheap.
                prop_assert!(bytes <= (rate as f64 / 8.0 * seconds + allowance) * 1.000_25);
            }
        }
    }

    #[test]
    fn a_live_change_grants_at_most_the_new_burst_and_never_starves(
        old in (rates(), depths()), new in (rates(), 0..400_000_u64), len in lengths(), spent in 0..200_usize, pause in pauses(),
    ) {
        let len = len.max((new.0 / 4_000_000) as usize);
        let start = Instant::now();
        let mut bucket = Bucket::new(BitRate(old.0), old.1, start);
        for _ in 0..spent {
            bucket.spend(start, len);
        }
        let now = start + pause;
        bucket.change(BitRate(new.0), new.1, now);
        let mut sent = 0_u64;
        while bucket.conforms(now, len).is_none() {
            bucket.spend(now, len);
            sent += len as u64;
        }
        let tolerated = u128::from(new.0) * TOLERANCE.as_nanos() / UNIT as u128;
        // A frame may be a picosecond too cheap.
        let rounding = 1 + sent / 4000;
        prop_assert!(sent <= new.1.max(tolerated as u64 + len as u64) + rounding, "{sent} bytes at once");
        // Debt at the old rate does not prevent sending at the new one.
        let mut fresh = Bucket::new(BitRate(old.0), old.1, start);
        for _ in 0..spent {
            fresh.spend(start, len);
        }
        fresh.change(BitRate(new.0), new.1, start);
        let wait = fresh.conforms(start, len).map_or(Duration::ZERO, |when| when - start);
        prop_assert!(wait.as_secs_f64() <= (8 * len) as f64 / new.0 as f64 + 1e-6, "waits {wait:?}");
    }

    #[test]
    fn a_change_to_the_same_shape_keeps_credit(rate in rates(), depth in 100_000..4_000_000_u64, len in lengths(), pause in 0..1_000_000_000_u64) {
        let start = Instant::now();
        let mut bucket = Bucket::new(BitRate(rate), depth, start);
        bucket.spend(start, len);
        let now = start + Duration::from_nanos(pause);
        let before = bucket.backlog(now);
        bucket.change(BitRate(rate), depth, now);
        let byte = bucket.cost(1) + 1;
        prop_assert!(bucket.backlog(now).abs_diff(before) <= byte);
    }

    #[test]
    fn a_later_or_shorter_frame_is_never_delayed_more(rate in rates(), depth in depths(), spent in 0..100_usize, len in lengths(), pause in pauses()) {
        let start = Instant::now();
        let mut bucket = Bucket::new(BitRate(rate), depth, start);
        for _ in 0..spent {
            bucket.spend(start, len);
        }
        let first = bucket.conforms(start, len);
        let later = bucket.conforms(start + pause, len);
        prop_assert!(later.is_none() || later == first);
        prop_assert!(bucket.conforms(start, len / 2) <= first);
    }
}

#[test]
fn a_worker_whose_clock_is_behind_gets_the_same_decision() {
    let now = Instant::now();
    let mut bucket = Bucket::new(BitRate(1_000_000), 10_000, now);
    bucket.spend(now + Duration::from_secs(1), 10_000);
    let then = bucket.conforms(now, 1000).unwrap();
    assert!(then <= now + Duration::from_millis(1010), "not in debt for long");
    bucket.spend(now, 1000);
    assert!(bucket.conforms(now + Duration::from_secs(2), 1000).is_none());
}
