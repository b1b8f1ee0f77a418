//! Time that frames from an uplink may wait for receivers.
//!
//! All frames from an uplink have one queue. While its first frame waits for room at a slow guest,
//! the frames of all other guests wait as well. A [`WaitBudget`] limits this twice: to a share of
//! the time for each receiver, and to a share for all receivers of an uplink together. When a
//! budget is used up, a frame that finds no room is dropped, as a network card does.

use std::time::{Duration, Instant};

/// Longest time that a frame waits for room at its receiver. Interrupt coalescing may delay a guest
/// by as much.
pub const LONGEST_WAIT: Duration = Duration::from_millis(4);
/// No wait begins with less time left: waking up takes about as long.
const SHORTEST_WAIT: Duration = Duration::from_micros(500);
/// Most waiting time that is charged: a thread that wakes up late waits longer than it may.
const MOST_DEBT: Duration = Duration::from_millis(16);

/// Budget of a receiver: a sixteenth of the time, divided by the number of its queues.
pub type ReceiverBudget = WaitBudget<16>;

/// Budget of an uplink, for all receivers of its frames: a quarter of the time.
pub type UplinkBudget = WaitBudget<4>;

/// Waiting time that is left: [`LONGEST_WAIT`] at most, and one part in `SHARE` of the time in the
/// long run.
#[derive(Debug, Default, Clone, Copy)]
pub struct WaitBudget<const SHARE: u32> {
    /// Number of other budgets that divide this share.
    others: u32,
    /// Waiting time charged, minus the allowance regained up to `at`.
    debt: Duration,
    /// Time of the last charge; `None` before the first one.
    at: Option<Instant>,
    wait: Wait,
}

/// A wait for room.
#[derive(Debug, Default, Clone, Copy)]
enum Wait {
    /// No frame waits.
    #[default]
    None,
    /// A frame has waited since a time, and may wait until another one.
    Lasts { since: Instant, until: Instant },
    /// A frame was dropped. Further ones are dropped at once, until there is room.
    GivenUp,
}

impl<const SHARE: u32> WaitBudget<SHARE> {
    /// Returns one of `count` budgets that have the share together.
    pub fn one_of(count: usize) -> Self {
        Self { others: u32::try_from(count.saturating_sub(1)).unwrap_or(u32::MAX - 1), ..Self::default() }
    }

    /// Returns the waiting time that is left at `now`; none if it is too little for a wait.
    pub fn left(&self, now: Instant) -> Duration {
        let left = LONGEST_WAIT.saturating_sub(self.debt_at(now));
        if left < SHORTEST_WAIT { Duration::ZERO } else { left }
    }

    /// Begins a wait, unless one lasts. Returns its end, which may be `now`.
    pub fn begin(&mut self, now: Instant) -> Instant {
        match self.wait {
            Wait::Lasts { until, .. } => until,
            Wait::GivenUp => now,
            Wait::None => {
                let until = now + self.left(now);
                self.wait = Wait::Lasts { since: now, until };
                until
            }
        }
    }

    /// Ends the wait, if one lasts, and charges it: there is room.
    pub fn end(&mut self, now: Instant) {
        if let Wait::Lasts { since, .. } = std::mem::take(&mut self.wait) {
            let waited = now.saturating_duration_since(since);
            self.debt = (self.debt_at(now) + waited).min(MOST_DEBT);
            self.at = Some(now);
        }
    }

    /// Ends the wait without room: its frame is dropped.
    pub fn give_up(&mut self, now: Instant) {
        self.end(now);
        self.wait = Wait::GivenUp;
    }

    fn debt_at(&self, now: Instant) -> Duration {
        let passed = self.at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        self.debt.saturating_sub(passed / SHARE / (self.others + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Waits for a time from `at` on.
    fn wait<const SHARE: u32>(budget: &mut WaitBudget<SHARE>, at: Instant, time: Duration) {
        budget.begin(at);
        budget.end(at + time);
    }

    #[test]
    fn waiting_time_comes_back_with_its_share_of_the_time() {
        let start = Instant::now();
        let mut budget = ReceiverBudget::default();
        assert_eq!(budget.left(start), LONGEST_WAIT);
        wait(&mut budget, start, 3 * MS);
        let at = |ms| start + 3 * MS + ms * MS;
        assert_eq!((budget.left(at(0)), budget.left(at(16))), (MS, 2 * MS));
        wait(&mut budget, at(16), MS);
        assert_eq!(budget.left(at(17)), MS + MS / 16);
        wait(&mut budget, at(17), 100 * MS);
        assert_eq!((budget.left(at(117)), budget.left(at(117 + 192))), (Duration::ZERO, Duration::ZERO));
        assert_eq!(budget.left(at(117 + 256)), LONGEST_WAIT, "what was waited too long is paid back");
        assert_eq!(budget.left(at(10_000)), LONGEST_WAIT, "there are no savings");
        let mut two = [ReceiverBudget::one_of(2), ReceiverBudget::one_of(2)];
        for budget in &mut two {
            wait(budget, start, 4 * MS);
        }
        assert_eq!(two.map(|budget| budget.left(start + 36 * MS)), [MS; 2], "together a sixteenth");
    }

    #[test]
    fn a_wait_has_an_end_and_nobody_waits_again_before_there_is_room() {
        let start = Instant::now();
        let mut budget = ReceiverBudget::default();
        wait(&mut budget, start, 3 * MS);
        let begun = start + 3 * MS;
        let until = budget.begin(begun);
        assert_eq!((until, budget.begin(begun + MS / 2)), (begun + MS, until));
        budget.give_up(until);
        assert_eq!(budget.begin(begun + 500 * MS), begun + 500 * MS);
        budget.end(begun + 500 * MS);
        assert_eq!(budget.begin(begun + 501 * MS), begun + 501 * MS + LONGEST_WAIT);
    }

    #[test]
    fn no_wait_begins_with_too_little_time() {
        let start = Instant::now();
        let mut budget = UplinkBudget::default();
        wait(&mut budget, start, 4 * MS);
        let used_up = start + 4 * MS;
        assert_eq!(budget.begin(used_up + MS), used_up + MS, "a quarter of a millisecond is left");
        budget.end(used_up + MS);
        assert_eq!(budget.left(used_up + 2 * MS), MS / 2);
    }
}
