//! Deadlines of calls.

use std::time::{Duration, Instant};

use rustix::event::Timespec;

/// How long a call may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Not at all: the call fails with [`WouldBlock`](std::io::ErrorKind::WouldBlock) instead.
    No,
    /// Until a time; then the call fails with [`TimedOut`](std::io::ErrorKind::TimedOut). It may
    /// end up to a millisecond later.
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
    timespec(until.saturating_duration_since(Instant::now()))
}

/// A time as `poll` takes it. One that is too long for the kernel's type is as good as none.
pub(crate) fn timespec(time: Duration) -> Timespec {
    Timespec::try_from(time).unwrap_or(Timespec { tv_sec: i64::MAX / 2, tv_nsec: 0 })
}
