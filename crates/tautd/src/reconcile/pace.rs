//! The longest time between two rounds when nothing calls for one.
//!
//! A round of a host with many VMs takes longer, and almost always finds nothing to do: the ends of
//! processes, requests and the fabric wake the loop by messages. So calm rounds keep to a share of
//! a pCPU (decision 0054).

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Time between two rounds of a small host.
const SHORTEST: Duration = Duration::from_secs(1);
/// Time between two rounds of a host with so many VMs that its rounds would take more than their
/// share.
const LONGEST: Duration = Duration::from_secs(10);
/// Pause after a round, as a multiple of the pCPU's time that the round took: rounds take at most
/// 0.13 % of a pCPU, unless that would make the pause longer than [`LONGEST`].
const MULTIPLE: u32 = 800;

/// Number of rounds of which the cheapest counts: one that starts VMs says nothing about the next.
const ROUNDS: usize = 4;

/// Measures what rounds cost.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// CPU time of this thread at the begin of the round.
    began: Duration,
    /// CPU time of the last rounds.
    rounds: [Duration; ROUNDS],
    /// Number of rounds.
    count: usize,
}

impl Pace {
    /// Begins a round of the calling thread.
    pub(super) fn begin(&mut self) {
        self.began = cpu_time();
    }

    /// Ends the round that the calling thread has begun. Returns the pause after it if the host is
    /// calm.
    pub(super) fn end(&mut self) -> Duration {
        self.note(cpu_time().saturating_sub(self.began))
    }

    /// Notes the CPU time of a round. Returns the pause after it.
    fn note(&mut self, round: Duration) -> Duration {
        self.rounds[self.count % ROUNDS] = round;
        self.count += 1;
        let cheapest = self.rounds.iter().min().copied().unwrap_or_default();
        (cheapest * MULTIPLE).clamp(SHORTEST, LONGEST)
    }
}

/// Returns the time that the calling thread has run.
fn cpu_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_grows_with_what_rounds_cost_within_its_limits() {
        let mut pace = Pace::default();
        let mut pause = |ms| pace.note(Duration::from_millis(ms)).as_millis();
        assert_eq!([5, 5, 5, 5].map(&mut pause), [1000, 1000, 1000, 4000], "four rounds are known");
        assert_eq!([400, 12, 12, 12].map(&mut pause), [4000, 4000, 4000, 9600]);
        assert_eq!([60, 60, 60, 60].map(&mut pause), [9600, 9600, 9600, 10_000]);
        assert_eq!(pause(1), 1000);
    }

    #[test]
    fn only_time_that_the_thread_runs_counts() {
        let mut pace = Pace::default();
        for _ in 0..ROUNDS {
            pace.begin();
            std::thread::sleep(Duration::from_millis(10));
            assert_eq!(pace.end(), SHORTEST);
        }
        for _ in 0..ROUNDS {
            pace.begin();
            while cpu_time() < pace.began + Duration::from_millis(4) {}
            pace.end();
        }
        assert!(pace.note(LONGEST) >= Duration::from_millis(3200));
    }
}
