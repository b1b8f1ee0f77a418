//! Sharing of the CPU: when the thread yields the CPU on which the guest that it waits for may have
//! to run.
//!
//! If that guest needs the same CPU, every poll before the yield is lost. If the guest has a CPU of
//! its own, it answers in a moment, and a yield costs more than the wait. Which of the two holds
//! changes whenever the scheduler moves a thread, so the results of the last yields decide.

use std::time::{Duration, Instant};

use crate::vsock::proto::GuestIdx;

/// Longest time of polling before a yield. A guest on another CPU has answered by then.
const USUAL: Duration = Duration::from_micros(5);
/// Shortest time of polling before a yield; below it the thread yields at once.
const SHORTEST: Duration = Duration::from_micros(1);
/// Longest yield that was worth it. After a longer one the thread polls for this time before the
/// next yield.
const KEPT: Duration = Duration::from_micros(20);
/// Longest duration of the system call alone. In a longer yield another thread has run.
const ALONE: Duration = Duration::from_nanos(1500);

/// State of the decision.
#[derive(Debug, Default)]
pub(crate) struct Sharing {
    /// Time of polling before a yield, by the guest that the thread waits for: the one that was
    /// last shown a packet.
    windows: Vec<Duration>,
    guest: GuestIdx,
    /// Start of the present idle time.
    idle_since: Option<Instant>,
    /// Another thread has run in a yield of this idle time, and has not kept the CPU.
    others_ran: bool,
}

impl Sharing {
    /// Notes that there was something to do; `guest` was the last that was shown a packet.
    pub(crate) fn worked(&mut self, guest: GuestIdx) {
        if self.idle_since.take().is_some() {
            let others_ran = std::mem::take(&mut self.others_ran);
            let window = self.window();
            if others_ran {
                *window /= 2;
                if *window < SHORTEST {
                    *window = Duration::ZERO;
                }
            } else if *window < USUAL {
                *window = (2 * *window).clamp(SHORTEST, USUAL);
            }
        }
        self.guest = guest;
    }

    /// Tells whether to yield now that there is nothing to do.
    pub(crate) fn should_yield(&mut self, now: Instant) -> bool {
        let since = *self.idle_since.get_or_insert(now);
        now.saturating_duration_since(since) >= *self.window()
    }

    /// Notes how long a yield took.
    pub(crate) fn yielded(&mut self, took: Duration) {
        if took > KEPT {
            self.others_ran = false;
            *self.window() = KEPT;
        } else {
            self.others_ran |= took > ALONE;
        }
    }

    fn window(&mut self) -> &mut Duration {
        let guest = self.guest.0 as usize;
        if self.windows.len() <= guest {
            self.windows.resize(guest + 1, USUAL);
        }
        &mut self.windows[guest]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets the thread be idle until `gap` has passed, with yields of length `turn`. Returns how
    /// long it polled before the first yield.
    fn idle(sharing: &mut Sharing, gap: Duration, turn: Duration) -> Duration {
        let began = Instant::now();
        let mut passed = Duration::ZERO;
        let mut first = None;
        while passed < gap {
            if sharing.should_yield(began + passed) {
                first.get_or_insert(passed);
                sharing.yielded(turn);
                passed += turn;
            } else {
                passed += Duration::from_nanos(100);
            }
        }
        sharing.worked(sharing.guest);
        first.unwrap_or(passed)
    }

    #[test]
    fn the_thread_yields_at_once_while_yields_let_others_answer() {
        let mut sharing = Sharing::default();
        let (gap, turn) = (Duration::from_micros(8), Duration::from_micros(3));
        assert_eq!(idle(&mut sharing, gap, turn), USUAL);
        for _ in 0..3 {
            idle(&mut sharing, gap, turn);
        }
        assert_eq!(idle(&mut sharing, gap, turn), Duration::ZERO);
        // No other thread wants the CPU any more.
        let alone = Duration::from_nanos(300);
        for _ in 0..5 {
            idle(&mut sharing, gap, alone);
        }
        assert_eq!(idle(&mut sharing, gap, alone), USUAL);
    }

    #[test]
    fn each_guest_has_a_window_of_its_own() {
        let mut sharing = Sharing::default();
        let (soon, late, turn) =
            (Duration::from_micros(4), Duration::from_micros(8), Duration::from_micros(3));
        for _ in 0..5 {
            sharing.worked(GuestIdx(3));
            idle(&mut sharing, late, turn);
            sharing.worked(GuestIdx(0));
            assert_eq!(idle(&mut sharing, soon, turn), soon, "the guest answers while the thread polls");
        }
        sharing.worked(GuestIdx(3));
        assert_eq!(idle(&mut sharing, late, turn), Duration::ZERO);
    }

    #[test]
    fn a_thread_that_keeps_the_cpu_is_yielded_to_later_the_next_time() {
        let mut sharing = Sharing { windows: vec![Duration::ZERO], ..Sharing::default() };
        let (long, gap, turn) =
            (Duration::from_millis(3), Duration::from_micros(50), Duration::from_micros(3));
        assert_eq!(idle(&mut sharing, gap, long), Duration::ZERO);
        assert_eq!(idle(&mut sharing, gap, long), KEPT);
        assert_eq!(idle(&mut sharing, Duration::from_micros(2), long), Duration::from_micros(2));
        assert_eq!(idle(&mut sharing, gap, turn), KEPT, "only a short yield changes that");
        assert_eq!(idle(&mut sharing, gap, turn), KEPT / 2);
    }

    #[test]
    fn work_without_a_pause_changes_nothing() {
        let mut sharing = Sharing::default();
        (0..10).for_each(|_| sharing.worked(GuestIdx(0)));
        assert_eq!(*sharing.window(), USUAL);
    }
}
