//! Deadlines of calls.

use std::time::Instant;

use rustix::event::Timespec;

/// How long a call may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Not at all: the call fails with [`WouldBlock`](std::io::ErrorKind::WouldBlock) instead.
    No,
    /// Until a time; then the call fails with [`TimedOut`](std::io::ErrorKind::TimedOut).
    Until(Instant),
    /// Without a limit.
    Forever,
}

impl Wait {
    /// The time at which the wait ends.
    pub(crate) fn deadline(self) -> Option<Instant> {
        match self {
            Self::No => Some(Instant::now()),
            Self::Until(time) => Some(time),
            Self::Forever => None,
        }
    }
}

/// The time left until a deadline, as `poll` takes it.
pub(crate) fn timeout(until: Instant) -> Timespec {
    let left = until.saturating_duration_since(Instant::now());
    // A time that is too long for the kernel's type is as good as none.
    Timespec::try_from(left).unwrap_or(Timespec { tv_sec: i64::MAX / 2, tv_nsec: 0 })
}
