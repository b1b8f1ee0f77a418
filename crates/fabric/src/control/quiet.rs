//! Keeps what a guest can provoke from flooding the log.

use std::time::{Duration, Instant};

/// At most one line in this time.
const INTERVAL: Duration = Duration::from_secs(1);

/// One source of log lines.
#[derive(Debug, Default)]
pub(super) struct Quiet {
    last: Option<Instant>,
    suppressed: u64,
}

impl Quiet {
    /// May a line be written now? If so, how many were left out since the last one.
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
    fn one_line_an_interval_and_the_rest_is_counted() {
        let start = Instant::now();
        let mut quiet = Quiet::default();
        assert_eq!(quiet.permit(start), Some(0));
        for _ in 0..9 {
            assert_eq!(quiet.permit(start), None);
        }
        assert_eq!(quiet.permit(start + INTERVAL), Some(9));
    }
}
