//! Pauses of polling while other threads want the worker's CPU.
//!
//! A worker that polls shares its CPU worse than one that sleeps: the threads that it keeps waiting
//! are often the guests that it waits for. So an adaptive worker compares the time for which it was
//! awake with the CPU time that it got. If it has waited for its CPU, it does not poll for a while.
//! Asleep it cannot see whether others still want the CPU, so it then tries.

use std::time::{Duration, Instant};

/// Shortest time awake that tells something.
const ENOUGH: Duration = Duration::from_millis(10);
/// Part of the time awake for which a worker may wait for its CPU: one of so many.
const PART: u32 = 20;
/// First pause of polling: as short as what may have disturbed the worker. Each further trial that
/// fails doubles it.
const FIRST: Duration = Duration::from_millis(200);
/// Longest pause. With a trial of a window after it, little time is polled in vain.
const LONGEST: Duration = Duration::from_secs(16);

/// Whether a worker polls.
#[derive(Debug)]
pub(super) struct Contention {
    /// End of the pause, if the worker does not poll.
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
    /// Tells whether the worker polls.
    pub(super) fn polls(&self) -> bool {
        self.until.is_none()
    }

    /// Notes a window that ends `now`, in which the worker was `awake` for so long and got so much
    /// CPU time. Returns `true` if [`Self::polls`] has changed.
    pub(super) fn measured(&mut self, awake: Duration, ran: Duration, now: Instant) -> bool {
        match self.until {
            Some(until) if now >= until => self.until = None,
            Some(_) => return false,
            None if awake < ENOUGH => return false,
            None if awake.saturating_sub(ran) > awake / PART => {
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

    /// Has windows pass in which the worker gets this part of its time, in thousandths. Returns the
    /// number of those in which it has polled.
    fn pass(contention: &mut Contention, now: &mut Instant, windows: u32, part: u32) -> u32 {
        let mut polled = 0;
        for _ in 0..windows {
            polled += u32::from(contention.polls());
            *now += WINDOW;
            contention.measured(WINDOW, WINDOW * part / 1000, *now);
        }
        polled
    }

    #[test]
    fn a_worker_that_waits_for_its_cpu_polls_less_and_less() {
        let (mut contention, mut now) = (Contention::default(), Instant::now());
        assert_eq!(pass(&mut contention, &mut now, 100, 960), 100, "others want little");
        assert_eq!(pass(&mut contention, &mut now, 3, 900), 1, "a short pause");
        let polled = pass(&mut contention, &mut now, 3000, 500);
        assert!((15..35).contains(&polled), "{polled} of 3000 windows");
    }

    #[test]
    fn a_worker_polls_again_when_its_cpu_is_free() {
        let (mut contention, mut now) = (Contention::default(), Instant::now());
        pass(&mut contention, &mut now, 3000, 500);
        let longest = LONGEST.as_millis() as u32 / 100;
        pass(&mut contention, &mut now, longest + 1, 1000);
        assert_eq!(pass(&mut contention, &mut now, 100, 1000), 100);
        assert_eq!(pass(&mut contention, &mut now, 3, 900), 1, "the pauses are short again");
    }

    #[test]
    fn a_worker_that_sleeps_keeps_polling() {
        let (mut contention, mut now) = (Contention::default(), Instant::now());
        for _ in 0..100 {
            now += WINDOW;
            assert!(!contention.measured(WINDOW / 20, Duration::ZERO, now));
        }
        assert!(contention.polls());
    }
}
