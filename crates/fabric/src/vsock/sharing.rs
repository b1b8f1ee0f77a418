//! When the thread lets others have the CPU that it shares with them: what it waits for may need that very one.
//!
//! If it does, every look around before that is lost; if it has a CPU of its own, it answers in a moment, and to let others go first costs
//! more than to wait for it. Which of the two it is changes whenever the scheduler moves a thread, so what came of it the last times decides.

use std::time::{Duration, Instant};

/// The longest that is looked around first. Whoever runs on another CPU has answered by then.
const USUAL: Duration = Duration::from_micros(5);
/// The shortest; below it others have the CPU at once.
const SHORTEST: Duration = Duration::from_micros(1);
/// As much is looked around once somebody has kept the CPU for longer than this: to let that one go first was no bargain.
const KEPT: Duration = Duration::from_micros(20);
/// As long the system call takes by itself at most; if it took longer, somebody else has run.
const ALONE: Duration = Duration::from_nanos(1500);

/// The state of it.
#[derive(Debug, Default)]
pub(super) struct Sharing {
    /// For how long to look around first, by the guest that was last given something: it is the one that is waited for.
    windows: Vec<Duration>,
    guest: usize,
    /// Since when there has been nothing to do.
    idle_since: Option<Instant>,
    /// Somebody has run since then, and has not kept the CPU.
    others_ran: bool,
}

impl Sharing {
    /// There was something to do; `guest` was the last that was given something.
    pub(super) fn worked(&mut self, guest: usize) {
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

    /// There is nothing to do: are others to have the CPU now?
    pub(super) fn gives_way(&mut self, now: Instant) -> bool {
        let since = *self.idle_since.get_or_insert(now);
        now.saturating_duration_since(since) >= *self.window()
    }

    /// It was back after so long.
    pub(super) fn is_back(&mut self, after: Duration) {
        if after > KEPT {
            self.others_ran = false;
            *self.window() = KEPT;
        } else {
            self.others_ran |= after > ALONE;
        }
    }

    fn window(&mut self) -> &mut Duration {
        if self.windows.len() <= self.guest {
            self.windows.resize(self.guest + 1, USUAL);
        }
        &mut self.windows[self.guest]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing to do until `gap` has passed; each time that others are let go first takes `turn`. How long it was looked around first?
    fn idle(sharing: &mut Sharing, gap: Duration, turn: Duration) -> Duration {
        let began = Instant::now();
        let mut passed = Duration::ZERO;
        let mut first = None;
        while passed < gap {
            if sharing.gives_way(began + passed) {
                first.get_or_insert(passed);
                sharing.is_back(turn);
                passed += turn;
            } else {
                passed += Duration::from_nanos(100);
            }
        }
        sharing.worked(sharing.guest);
        first.unwrap_or(passed)
    }

    #[test]
    fn others_go_first_at_once_while_that_is_what_helps() {
        let mut sharing = Sharing::default();
        let (gap, turn) = (Duration::from_micros(8), Duration::from_micros(3));
        assert_eq!(idle(&mut sharing, gap, turn), USUAL);
        for _ in 0..3 {
            idle(&mut sharing, gap, turn);
        }
        assert_eq!(idle(&mut sharing, gap, turn), Duration::ZERO);
        // Nobody is there any more.
        let alone = Duration::from_nanos(300);
        for _ in 0..5 {
            idle(&mut sharing, gap, alone);
        }
        assert_eq!(idle(&mut sharing, gap, alone), USUAL);
    }

    #[test]
    fn each_guest_is_waited_for_in_its_own_way() {
        let mut sharing = Sharing::default();
        let (soon, late, turn) =
            (Duration::from_micros(4), Duration::from_micros(8), Duration::from_micros(3));
        for _ in 0..5 {
            sharing.worked(3);
            idle(&mut sharing, late, turn);
            sharing.worked(0);
            assert_eq!(idle(&mut sharing, soon, turn), soon, "it answers while it is waited for");
        }
        sharing.worked(3);
        assert_eq!(idle(&mut sharing, late, turn), Duration::ZERO);
    }

    #[test]
    fn whoever_keeps_the_cpu_is_not_let_go_first_so_soon() {
        let mut sharing = Sharing { windows: vec![Duration::ZERO], ..Sharing::default() };
        let (long, gap, turn) =
            (Duration::from_millis(3), Duration::from_micros(50), Duration::from_micros(3));
        assert_eq!(idle(&mut sharing, gap, long), Duration::ZERO);
        assert_eq!(idle(&mut sharing, gap, long), KEPT);
        assert_eq!(idle(&mut sharing, Duration::from_micros(2), long), Duration::from_micros(2));
        assert_eq!(idle(&mut sharing, gap, turn), KEPT, "it takes a short turn to change that");
        assert_eq!(idle(&mut sharing, gap, turn), KEPT / 2);
    }

    #[test]
    fn work_without_a_pause_changes_nothing() {
        let mut sharing = Sharing::default();
        (0..10).for_each(|_| sharing.worked(0));
        assert_eq!(*sharing.window(), USUAL);
    }
}
