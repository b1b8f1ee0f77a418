//! The clock of moderation: the longest delay, and the common ticks of `dense`.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// Longest delay by `static`, and the distance between ticks (ESX: `Net.CoalesceTxTimeout`).
pub(super) const MAX_DELAY: Duration = Duration::from_millis(4);

/// One tick. Its time does not matter, as long as all queues share it.
static FIRST: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The first tick after this time. Ticks are [`MAX_DELAY`] apart.
pub(super) fn tick(after: Instant) -> Instant {
    let rest = |time: Duration| Duration::from_nanos((time.as_nanos() % MAX_DELAY.as_nanos()) as u64);
    match after.checked_duration_since(*FIRST) {
        Some(since) => after + MAX_DELAY.saturating_sub(rest(since)),
        None => match rest(FIRST.duration_since(after)) {
            Duration::ZERO => after + MAX_DELAY,
            until => after + until,
        },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ticks_are_common_and_evenly_spaced(times in prop::collection::vec(0..50_000_000_u64, 1..50)) {
            // Some of the times are before the first tick.
            let start = FIRST.checked_sub(Duration::from_millis(20)).unwrap();
            for time in times {
                let time = start + Duration::from_nanos(time);
                let next = tick(time);
                prop_assert!(next > time && next - time <= MAX_DELAY);
                prop_assert_eq!(tick(next), next + MAX_DELAY);
                // The first tick is 20 ms after the start, five intervals.
                prop_assert_eq!((next - start).as_nanos() % MAX_DELAY.as_nanos(), 0);
            }
        }
    }
}
