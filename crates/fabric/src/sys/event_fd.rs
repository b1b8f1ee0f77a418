//! An eventfd of a front end, which this process signals.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use taut_api::fabric::ForeignFd;

use super::watch;

/// The eventfd. The front end may do with it what it wants, even block a thread that signals it;
/// then it is never signalled again ([`watch`]).
#[derive(Debug)]
pub struct EventFd {
    fd: ForeignFd,
    blocked: AtomicBool,
}

impl EventFd {
    /// Signals the front end.
    #[inline]
    pub fn signal(&self) {
        if !self.has_blocked() && watch::signal(self.fd.as_fd()).is_err() {
            // First the mark: whoever the alarm wakes looks for it, and nothing repeats the alarm.
            self.blocked.store(true, Relaxed);
            watch::report();
        }
    }

    /// Tells whether a signal has blocked its thread.
    pub fn has_blocked(&self) -> bool {
        self.blocked.load(Relaxed)
    }
}

impl From<ForeignFd> for EventFd {
    fn from(fd: ForeignFd) -> Self {
        Self { fd, blocked: AtomicBool::new(false) }
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
