//! The parts of an entry that tell whether small writes are gathered.

use std::os::fd::RawFd;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

use super::Table;
use super::slot::{ANSWERED, CONNECTION, CORKED, DUPLICATED, NO_DELAY, PRIVATE, STREAM};

impl Table {
    /// Records that this process alone has a new connection.
    pub(crate) fn set_private(&self, fd: RawFd) {
        if let Some(slot) = self.slot(fd) {
            // The program may have closed the connection before it unseen.
            slot.marks.fetch_and(!(CORKED | ANSWERED), Relaxed);
            slot.marks.fetch_or(PRIVATE, Relaxed);
        }
    }

    /// Records that another process may have a connection. Returns whether it was private before.
    pub(crate) fn set_shared(&self, fd: RawFd) -> bool {
        self.slot(fd).is_some_and(|slot| {
            slot.is_marked(PRIVATE) && slot.marks.fetch_and(!PRIVATE, Relaxed) & PRIVATE != 0
        })
    }

    /// Records that a stream of the C library (`fdopen`) writes to a number.
    pub(crate) fn set_stream(&self, fd: RawFd) {
        if let Some(slot) = self.slot(fd) {
            slot.marks.fetch_or(STREAM, Relaxed);
        }
    }

    /// Tells whether a number is a connection to which only this process writes, by this number and
    /// by system calls that the library sees.
    pub(crate) fn is_private(&self, fd: RawFd) -> bool {
        self.slot(fd).is_some_and(|slot| {
            slot.marks.load(Relaxed) & (PRIVATE | DUPLICATED | STREAM) == PRIVATE
                && slot.kind.load(Acquire) == CONNECTION
        })
    }

    /// The cookie of a connection.
    pub(crate) fn cookie(&self, fd: RawFd) -> Option<u64> {
        self.slot(fd).filter(|slot| slot.kind.load(Acquire) == CONNECTION).map(super::Slot::cookie)
    }

    /// Tells whether the program has set `TCP_NODELAY` of a connection.
    pub(crate) fn has_no_delay(&self, fd: RawFd) -> bool {
        self.slot(fd).is_some_and(|slot| slot.flags().load(Relaxed) & NO_DELAY != 0)
    }

    /// Sets or removes the program's `TCP_CORK`.
    pub(crate) fn set_cork(&self, fd: RawFd, on: bool) {
        let Some(slot) = self.slot(fd) else { return };
        if on {
            slot.marks.fetch_or(CORKED, Relaxed);
        } else {
            slot.marks.fetch_and(!CORKED, Relaxed);
        }
    }

    /// Tells whether the program has set `TCP_CORK`.
    pub(crate) fn has_cork(&self, fd: RawFd) -> bool {
        self.slot(fd).is_some_and(|slot| slot.is_marked(CORKED))
    }

    /// Records that the next write to a connection is not delayed.
    pub(crate) fn set_answered(&self, fd: RawFd) {
        if let Some(slot) = self.slot(fd)
            && slot.marks.load(Relaxed) & (PRIVATE | ANSWERED) == PRIVATE
        {
            slot.marks.fetch_or(ANSWERED, Relaxed);
        }
    }

    /// Tells whether that was recorded, once.
    pub(crate) fn was_answered(&self, fd: RawFd) -> bool {
        self.slot(fd).is_some_and(|slot| {
            slot.is_marked(ANSWERED) && slot.marks.fetch_and(!ANSWERED, Relaxed) & ANSWERED != 0
        })
    }

    /// Counts a thread that waits for a descriptor or an epoll instance, or no longer does.
    ///
    /// A thread that is cancelled, or leaves a signal handler by a jump, stays counted until the
    /// number is closed.
    pub(crate) fn waits(&self, fd: RawFd, begins: bool) {
        let Some(slot) = self.slot(fd) else { return };
        if begins {
            slot.waiting.fetch_add(1, SeqCst);
        } else {
            // The number may have been closed meanwhile.
            let _ = slot.waiting.fetch_update(SeqCst, Relaxed, |count| count.checked_sub(1));
        }
    }

    /// Forgets the threads that wait, which a forked child does not have.
    pub(crate) fn nobody_waits(&self) {
        for fd in self.numbers() {
            // A store would have the kernel copy the page.
            if let Some(slot) = self.slot(fd).filter(|slot| slot.waiting.load(SeqCst) != 0) {
                slot.waiting.store(0, SeqCst);
            }
        }
    }

    /// Tells whether a thread waits for a descriptor, or for the epoll instance that watches it.
    pub(crate) fn is_waited_for(&self, fd: RawFd) -> bool {
        let Some(slot) = self.slot(fd) else { return false };
        if slot.waiting.load(SeqCst) != 0 {
            return true;
        }
        match slot.epoll.load(Relaxed) {
            0 => false,
            // More than one instance.
            ..0 => true,
            number => {
                self.slot(self.root(number - 1)).is_some_and(|instance| instance.waiting.load(SeqCst) != 0)
            }
        }
    }
}
