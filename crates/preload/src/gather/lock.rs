//! A lock that a forked child can open again.
#![allow(unsafe_code, reason = "a value behind a lock")]

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use rustix::thread::futex;

use crate::sys::Blocked;

const FREE: u32 = 0;
const TAKEN: u32 = 1;
/// Taken, and other threads may wait for it.
const WAITED_FOR: u32 = 2;

/// A value that one thread at a time uses. If the program has signal handlers, the thread's signals
/// are blocked meanwhile, so that no handler waits for the thread that it has interrupted.
pub(super) struct Lock<T> {
    word: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: a reference to the value exists only in a `Taken`, of which there is one at a time.
unsafe impl<T: Send> Sync for Lock<T> {}

/// The lock, taken by this thread.
pub(super) struct Taken<'a, T> {
    lock: &'a Lock<T>,
    /// Dropped after the lock is free, which the drop of this structure does first.
    _blocked: Option<Blocked>,
}

impl<T> Lock<T> {
    pub(super) const fn new(value: T) -> Self {
        Self { word: AtomicU32::new(FREE), value: UnsafeCell::new(value) }
    }

    /// Takes the lock, if necessary after another thread.
    pub(super) fn take(&self) -> Taken<'_, T> {
        let blocked = Blocked::if_handled();
        if self.word.compare_exchange(FREE, TAKEN, Acquire, Relaxed).is_err() {
            while self.word.swap(WAITED_FOR, Acquire) != FREE {
                let _ = futex::wait(&self.word, futex::Flags::PRIVATE, WAITED_FOR, None);
            }
        }
        Taken { lock: self, _blocked: blocked }
    }

    /// Opens the lock in a forked child, which has one thread. The thread that had the lock is the
    /// parent's, and may have changed the value in part.
    pub(super) fn open(&self, repair: impl FnOnce(&mut T)) {
        // SAFETY: the only thread of this process is here, and none of its frames has the lock:
        // the program does not fork while a `Taken` exists.
        repair(unsafe { &mut *self.value.get() });
        self.word.store(FREE, Release);
    }
}

impl<T> Deref for Taken<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this thread has the lock.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Taken<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Taken<'_, T> {
    fn drop(&mut self) {
        if self.lock.word.swap(FREE, Release) == WAITED_FOR {
            let _ = futex::wake(&self.lock.word, futex::Flags::PRIVATE, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_at_a_time_changes_the_value() {
        static LOCK: Lock<u64> = Lock::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        let mut value = LOCK.take();
                        let before = std::hint::black_box(*value);
                        *value = before + 1;
                    }
                });
            }
        });
        assert_eq!(*LOCK.take(), 40_000);
    }
}
