//! How long a call looks at a ring before its thread sleeps.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Looks between two readings of the clock.
const LOOKS: u32 = 32;
/// Two readings of the clock that are further apart mean that the CPU ran something else.
const PREEMPTED: Duration = Duration::from_micros(25);

/// The time for looking in one direction, which follows what looking has been worth.
///
/// The time doubles when a wait ended that looking at full length would have met, and halves when
/// looking was in vain. Linux's `halt_poll_ns` for vCPUs works the same way.
#[derive(Debug)]
pub(crate) struct Spin {
    /// Longest time, in nanoseconds.
    most: u64,
    /// Present time, in nanoseconds.
    now: AtomicU64,
    /// True if the process has one CPU only, so that looking keeps others from it.
    single: bool,
}

impl Spin {
    /// Looks for at most `most`.
    pub(crate) fn new(most: Duration) -> Self {
        let most = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
        let single = thread::available_parallelism().is_ok_and(|count| count.get() == 1);
        Self { most, now: AtomicU64::new(most), single }
    }

    /// Looks until `ready` returns true or the time is over, and returns whether it was ready.
    pub(crate) fn until(&self, deadline: Option<Instant>, mut ready: impl FnMut() -> bool) -> bool {
        let time = Duration::from_nanos(self.now.load(Ordering::Relaxed));
        if time.is_zero() {
            return false;
        }
        let begin = Instant::now();
        let end = deadline.map_or(begin + time, |deadline| deadline.min(begin + time));
        let mut last = begin;
        loop {
            for _ in 0..LOOKS {
                if ready() {
                    return true;
                }
                std::hint::spin_loop();
            }
            if self.single {
                thread::yield_now();
            }
            let now = Instant::now();
            if now >= end {
                return false;
            }
            if now - last > PREEMPTED {
                // Others want the CPU, in the guest or on the host.
                self.now.store(0, Ordering::Relaxed);
                return ready();
            }
            last = now;
        }
    }

    /// Adjusts the time after a wait for which the thread slept.
    pub(crate) fn slept(&self, took: Duration) {
        let now = self.now.load(Ordering::Relaxed);
        let adjusted = if took <= Duration::from_nanos(self.most) {
            now.saturating_mul(2).max(self.most / 4).min(self.most)
        } else if now > self.most / 16 {
            now / 2
        } else {
            0
        };
        self.now.store(adjusted, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Duration = Duration::from_micros(50);

    fn nanoseconds(spin: &Spin) -> u64 {
        spin.now.load(Ordering::Relaxed)
    }

    #[test]
    fn long_waits_end_looking_and_short_ones_begin_it_again() {
        let spin = Spin::new(MOST);
        for _ in 0..5 {
            spin.slept(MOST * 2);
        }
        assert_eq!(nanoseconds(&spin), 0);
        assert!(!spin.until(None, || panic!("it must not look")));
        spin.slept(MOST / 2);
        assert_eq!(nanoseconds(&spin), 12_500);
        for _ in 0..9 {
            spin.slept(MOST);
        }
        assert_eq!(nanoseconds(&spin), 50_000);
    }

    #[test]
    fn it_never_looks_if_the_longest_time_is_zero() {
        let spin = Spin::new(Duration::ZERO);
        spin.slept(Duration::ZERO);
        assert!(!spin.until(None, || panic!("it must not look")));
    }

    #[test]
    fn a_look_ends_when_ready() {
        let spin = Spin::new(Duration::from_secs(60));
        let mut looks = 0;
        let ready = spin.until(None, || {
            looks += 1;
            looks == 3
        });
        assert!(ready);
        assert_eq!(looks, 3);
    }

    #[test]
    fn looking_ends_at_the_deadline_and_when_the_cpu_is_shared() {
        let spin = Spin::new(Duration::from_secs(60));
        assert!(!spin.until(Some(Instant::now()), || false));
        let spin = Spin::new(Duration::from_secs(60));
        assert!(!spin.until(None, || {
            thread::sleep(PREEMPTED / 4);
            false
        }));
        assert_eq!(nanoseconds(&spin), 0);
    }
}
