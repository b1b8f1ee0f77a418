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

/// The budget of one receive queue: a sixteenth of the time.
pub type ReceiverBudget = WaitBudget<16>;

/// The budget of an uplink, for all receivers of its frames: a quarter of the time.
pub type UplinkBudget = WaitBudget<4>;

/// Waiting time that is left: [`LONGEST_WAIT`] at most, and one part in `SHARE` of the time in the
/// long run.
#[derive(Debug, Default, Clone, Copy)]
pub struct WaitBudget<const SHARE: u32> {
    /// Time that was spent, less what has come back until `at`.
    spent: Duration,
    /// Time of the last change; `None` before the first one.
    at: Option<Instant>,
    /// Time since which a wait has not been charged.
    waiting_since: Option<Instant>,
}

impl<const SHARE: u32> WaitBudget<SHARE> {
    /// Returns the waiting time that is left at `now`.
    pub fn left(&self, now: Instant) -> Duration {
        LONGEST_WAIT.saturating_sub(self.spent_at(now))
    }

    /// Charges a wait that ends at `now`.
    pub fn spend(&mut self, waited: Duration, now: Instant) {
        self.spent = (self.spent_at(now) + waited).min(LONGEST_WAIT);
        self.at = Some(now);
    }

    /// Charges the wait up to `now`, if there is one, and notes whether a frame waits from now on.
    pub fn charge(&mut self, now: Instant, waits: bool) {
        if let Some(since) = self.waiting_since.take() {
            self.spend(now.saturating_duration_since(since), now);
        }
        self.waiting_since = waits.then_some(now);
    }

    fn spent_at(&self, now: Instant) -> Duration {
        let passed = self.at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        self.spent.saturating_sub(passed / SHARE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn waiting_time_comes_back_with_its_share_of_the_time() {
        let start = Instant::now();
        let mut budget = ReceiverBudget::default();
        assert_eq!(budget.left(start), LONGEST_WAIT);
        budget.spend(3 * MS, start);
        assert_eq!(budget.left(start), MS);
        assert_eq!(budget.left(start + 16 * MS), 2 * MS);
        budget.spend(MS, start + 16 * MS);
        assert_eq!(budget.left(start + 16 * MS), MS);
        budget.spend(100 * MS, start + 16 * MS);
        assert_eq!(budget.left(start + 16 * MS), Duration::ZERO);
        assert_eq!(budget.left(start + 80 * MS), LONGEST_WAIT, "no debts");
        assert_eq!(budget.left(start + 800 * MS), LONGEST_WAIT, "no savings");
    }

    #[test]
    fn a_wait_is_charged_while_it_lasts() {
        let start = Instant::now();
        let mut budget = UplinkBudget::default();
        budget.charge(start, false);
        budget.charge(start + MS, true);
        budget.charge(start + 2 * MS, true);
        assert_eq!(budget.left(start + 2 * MS), 3 * MS);
        budget.charge(start + 3 * MS, false);
        assert_eq!(budget.left(start + 3 * MS), 2 * MS + MS / 4);
        budget.charge(start + 7 * MS, false);
        assert_eq!(budget.left(start + 7 * MS), 3 * MS + MS / 4);
    }
}
