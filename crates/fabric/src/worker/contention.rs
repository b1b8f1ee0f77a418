//! Pauses of polling while other threads want the worker's CPU.
//!
//! A worker that polls takes CPU time from the threads on its CPU, and these are often the guests
//! that it waits for. An adaptive worker therefore compares the time for which it was awake with
//! the CPU time that it got. If it has waited much for its CPU, it does not poll for a while.
//! Without polling it hardly waits, so it cannot see when the others are gone: after the pause, it
//! polls for one window to measure again.

use std::time::{Duration, Instant};

/// Shortest time awake in a window that tells something.
const ENOUGH: Duration = Duration::from_millis(10);
/// Part of the time awake for which a worker may wait: one of so many. It is large because some
/// kernels (`CONFIG_IRQ_TIME_ACCOUNTING`) do not count the time of interrupts as a thread's own.
const PART: u32 = 8;
/// Time that a worker may wait in any case: kernel threads take some now and then.
const LITTLE: Duration = Duration::from_millis(2);
/// First pause of polling. A short disturbance costs no more. Each further trial that fails doubles
/// it.
const FIRST: Duration = Duration::from_millis(200);
/// Longest pause. With a trial of a window after it, little time is polled in vain.
const LONGEST: Duration = Duration::from_secs(16);

/// Decision whether an adaptive worker polls.
#[derive(Debug)]
pub(super) struct Contention {
    /// End of the pause, if there is one.
    until: Option<Instant>,
    /// Length of the next pause.
    pause: Duration,
}

impl Default for Contention {
    fn default() -> Self {
        Self { until: None, pause: FIRST }
    }
}

impl Contention {
    /// Tells whether the worker may poll: there is no pause.
    fn may_poll(&self) -> bool {
        self.until.is_none()
    }

    /// Returns the time for which a source is polled after its last frame: `patience`, or zero in a
    /// pause.
    pub(super) fn limit(&self, patience: Duration) -> Duration {
        if self.may_poll() { patience } else { Duration::ZERO }
    }

    /// Notes a window that ends `now`, in which the worker was `awake` for so long, and has
    /// `waited` for its CPU for a part of it. Returns `true` if a pause
    /// begins or ends, which changes [`Self::limit`].
    pub(super) fn measured(&mut self, awake: Duration, waited: Duration, now: Instant) -> bool {
        match self.until {
            Some(until) if now >= until => self.until = None,
            Some(_) => return false,
            None if awake < ENOUGH => return false,
            None if waited > (awake / PART).max(LITTLE) => {
                self.until = Some(now + self.pause);
                self.pause = (self.pause * 2).min(LONGEST);
            }
            None => {
                self.pause = (self.pause / 2).max(FIRST);
                return false;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_millis(100);

    /// Has windows pass in which the worker waits for so many thousandths of the time. Returns the
    /// number of windows in which it has polled.
    fn pass(contention: &mut Contention, now: &mut Instant, windows: u32, waited: u32) -> u32 {
        let mut polled = 0;
        for _ in 0..windows {
            polled += u32::from(contention.may_poll());
            *now += WINDOW;
            contention.measured(WINDOW, WINDOW * waited / 1000, *now);
        }
        polled
    }

    #[test]
    fn a_worker_that_waits_for_its_cpu_polls_less_and_less() {
        let (mut contention, mut now) = (Contention::default(), Instant::now());
        assert_eq!(pass(&mut contention, &mut now, 100, 120), 100, "others want little");
        assert_eq!(pass(&mut contention, &mut now, 3, 130), 1, "a short pause");
        let polled = pass(&mut contention, &mut now, 3000, 500);
        assert!((15..35).contains(&polled), "{polled} of 3000 windows");
    }

    #[test]
    fn a_worker_polls_again_when_its_cpu_is_free() {
        let (mut contention, mut now) = (Contention::default(), Instant::now());
        pass(&mut contention, &mut now, 3000, 500);
        let longest = LONGEST.as_millis() as u32 / 100;
        pass(&mut contention, &mut now, longest + 1, 0);
        assert_eq!(pass(&mut contention, &mut now, 100, 0), 100);
        assert_eq!(pass(&mut contention, &mut now, 3, 130), 1, "the pauses are short again");
    }

    #[test]
    fn a_short_wait_and_sleep_do_not_end_polling() {
        let (mut contention, now) = (Contention::default(), Instant::now());
        let mut measured = |awake, waited| {
            let [awake, waited] = [awake, waited].map(Duration::from_millis);
            contention.measured(awake, waited, now)
        };
        assert!(!measured(10, 2), "a kernel thread ran");
        assert!(!measured(9, 5), "it was mostly asleep");
        assert!(measured(10, 3));
    }
}
