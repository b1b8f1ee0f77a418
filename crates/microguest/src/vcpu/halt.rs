//! Halt polling as in KVM (`halt_poll_ns`): how long a vCPU without work polls before it sleeps.
//! The time grows when sleeps turn out short. Between two polls the vCPU yields its pCPU. It does
//! not poll while other threads have work for that pCPU, since it would take their time.

use std::time::{Duration, Instant};

/// Longest time of polling before a sleep, as in KVM on x86. A sleep that lasts longer ends
/// polling. So the time has to be longer than a round trip in which two guests both sleep: with
/// 50 µs, neither of the two polled again after they had.
const LONGEST: Duration = Duration::from_micros(200);
/// Time of polling after the first short sleep.
const FIRST: Duration = Duration::from_micros(10);

/// A yield that takes longer gave the pCPU to a thread with work of its own. Two guests that only
/// wait for each other on one pCPU take turns faster.
const WORK: Duration = Duration::from_micros(20);
/// Time without polling after such a yield.
const SHARED: Duration = Duration::from_millis(1);

/// The current time and state.
#[derive(Debug, Default)]
pub(super) struct HaltPolling {
    window: Duration,
    idle_since: Option<Instant>,
    /// When the vCPU yielded its pCPU, until it runs again.
    yielded: Option<Instant>,
    /// End of the time in which other threads are taken to need the pCPU.
    shared_until: Option<Instant>,
}

impl HaltPolling {
    /// Notes that the vCPU runs: after a yield, after a sleep, or still.
    pub(super) fn runs(&mut self, now: Instant) {
        let Some(yielded) = self.yielded.take() else { return };
        if now.saturating_duration_since(yielded) > WORK {
            self.window = Duration::ZERO;
            self.shared_until = Some(now + SHARED);
        }
    }

    /// Notes that there was work.
    pub(super) fn worked(&mut self) {
        self.idle_since = None;
    }

    /// Returns whether to yield the pCPU and poll once more instead of sleeping.
    pub(super) fn goes_on(&mut self, now: Instant) -> bool {
        let goes_on = now.saturating_duration_since(*self.idle_since.get_or_insert(now)) < self.window;
        self.yielded = goes_on.then_some(now);
        goes_on
    }

    /// Adapts to a sleep from `begun` to `ended`.
    pub(super) fn slept(&mut self, begun: Instant, ended: Instant) {
        self.idle_since = None;
        let is_shared = self.shared_until.is_some_and(|until| ended < until);
        let is_long = ended.saturating_duration_since(begun) > LONGEST;
        self.window =
            if is_shared || is_long { Duration::ZERO } else { (2 * self.window).clamp(FIRST, LONGEST) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_micros(5);

    /// A vCPU and the time.
    struct Vcpu {
        polling: HaltPolling,
        now: Instant,
    }

    impl Vcpu {
        fn new() -> Self {
            Self { polling: HaltPolling::default(), now: Instant::now() }
        }

        fn sleep(&mut self, duration: Duration) {
            let begun = self.now;
            self.now += duration;
            self.polling.slept(begun, self.now);
            self.polling.runs(self.now);
        }

        /// Polls without work, with yields of this length. Returns how long until it would sleep.
        fn idle(&mut self, each: Duration) -> Duration {
            let begun = self.now;
            while self.polling.goes_on(self.now) {
                self.now += each;
                self.polling.runs(self.now);
            }
            self.now - begun
        }
    }

    #[test]
    fn short_sleeps_lengthen_polling_and_a_long_sleep_ends_it() {
        let mut vcpu = Vcpu::new();
        assert_eq!(vcpu.idle(SHORT), Duration::ZERO, "at first it sleeps at once");
        vcpu.sleep(SHORT);
        assert_eq!(vcpu.idle(SHORT), FIRST);
        for _ in 0..5 {
            vcpu.sleep(LONGEST);
        }
        assert_eq!(vcpu.idle(SHORT), LONGEST);
        vcpu.sleep(LONGEST + SHORT);
        assert_eq!(vcpu.idle(SHORT), Duration::ZERO);
    }

    #[test]
    fn work_begins_polling_anew() {
        let mut vcpu = Vcpu::new();
        vcpu.sleep(SHORT);
        assert!(vcpu.polling.goes_on(vcpu.now));
        vcpu.now += FIRST;
        vcpu.polling.runs(vcpu.now);
        vcpu.polling.worked();
        assert!(vcpu.polling.goes_on(vcpu.now));
    }

    #[test]
    fn a_long_yield_ends_polling_for_a_while() {
        let mut vcpu = Vcpu::new();
        for _ in 0..5 {
            vcpu.sleep(SHORT);
        }
        let long = WORK + SHORT;
        assert_eq!(vcpu.idle(long), long, "it sleeps after the first long yield");
        vcpu.sleep(SHORT);
        assert_eq!(vcpu.idle(SHORT), Duration::ZERO);
        vcpu.now += SHARED;
        vcpu.sleep(SHORT);
        assert_eq!(vcpu.idle(SHORT), FIRST, "afterwards it tries again");
    }

    #[test]
    fn work_of_its_own_is_no_yield() {
        let mut vcpu = Vcpu::new();
        vcpu.sleep(SHORT);
        vcpu.now += 10 * WORK;
        vcpu.polling.runs(vcpu.now);
        assert_eq!(vcpu.idle(SHORT), FIRST);
    }
}
