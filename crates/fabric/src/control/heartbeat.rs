//! The progress of the threads that serve guests, which `tautd` asks for.

use std::time::{Duration, Instant};

/// Number of rounds that a thread has made; `None` while it sleeps.
pub(super) type Progress = Option<u64>;

/// The progress of each thread, as it was last seen.
#[derive(Debug, Default)]
pub(super) struct Heartbeat(Vec<Beat>);

#[derive(Debug)]
struct Beat {
    progress: Progress,
    /// First time at which this progress was seen.
    since: Instant,
}

impl Heartbeat {
    /// Looks at all threads. Returns the longest time for which one that is awake was seen with the
    /// same number of rounds.
    pub(super) fn silence(&mut self, now: Instant, threads: impl Iterator<Item = Progress>) -> Duration {
        let mut longest = Duration::ZERO;
        let mut count = 0;
        for progress in threads {
            match self.0.get_mut(count) {
                Some(beat) if progress.is_some() && beat.progress == progress => {
                    longest = longest.max(now.saturating_duration_since(beat.since));
                }
                Some(beat) => *beat = Beat { progress, since: now },
                None => self.0.push(Beat { progress, since: now }),
            }
            count += 1;
        }
        self.0.truncate(count);
        longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_thread_that_is_awake_and_makes_no_rounds_is_silent() {
        let start = Instant::now();
        let mut heartbeat = Heartbeat::default();
        let mut silence = |second: u64, threads: &[Progress]| {
            heartbeat.silence(start + Duration::from_secs(second), threads.iter().copied()).as_secs()
        };
        assert_eq!(silence(0, &[Some(5), None]), 0);
        assert_eq!(silence(1, &[Some(6), None]), 0);
        assert_eq!(silence(3, &[Some(6), None]), 2);
        assert_eq!(silence(9, &[Some(7), None]), 0);
        assert_eq!(silence(10, &[None, None, Some(1)]), 0);
        assert_eq!(silence(11, &[None]), 0);
        assert_eq!(silence(12, &[None, None, Some(1)]), 0, "another thread has the number now");
    }
}
