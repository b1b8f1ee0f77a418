//! A limit on log lines that a guest can provoke.

use std::time::{Duration, Instant};

/// Shortest time between two lines.
const INTERVAL: Duration = Duration::from_secs(1);

/// The limit of one source of log lines.
#[derive(Debug, Default)]
pub(super) struct LogLimit {
    last: Option<Instant>,
    suppressed: u64,
}

impl LogLimit {
    /// Decides whether a line may be written now. If so, returns the number of lines left out since
    /// the last one.
    pub(super) fn permit(&mut self, now: Instant) -> Option<u64> {
        if self.last.is_some_and(|last| now.duration_since(last) < INTERVAL) {
            self.suppressed += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_passes_per_interval_and_the_others_are_counted() {
        let start = Instant::now();
        let mut limit = LogLimit::default();
        assert_eq!(limit.permit(start), Some(0));
        for _ in 0..9 {
            assert_eq!(limit.permit(start), None);
        }
        assert_eq!(limit.permit(start + INTERVAL), Some(9));
    }
}
