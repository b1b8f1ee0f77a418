//! Agreement between a thread that sleeps and others that have news for it.
//!
//! Either the others see that the thread sleeps, and wake it, or the thread sees the news before it
//! sleeps. `tests/loom` tries every order of the steps.

use super::atomic::{AtomicBool, Relaxed, SeqCst, fence};

/// The state of one thread, as it and the others see it.
#[derive(Debug)]
pub(crate) struct Doze {
    /// There are news that the thread has not taken.
    news: AtomicBool,
    /// The thread sleeps, or is about to.
    asleep: AtomicBool,
}

impl Doze {
    /// The state of a thread that is awake and has no news.
    pub(crate) fn new() -> Self {
        Self { news: AtomicBool::new(false), asleep: AtomicBool::new(false) }
    }

    /// Says that there are news, which are there to be taken. Returns `true` if the caller must
    /// wake the thread.
    pub(crate) fn announce(&self) -> bool {
        self.news.store(true, Relaxed);
        fence(SeqCst);
        self.asleep.load(Relaxed)
    }

    /// Tells whether there are news.
    #[inline]
    pub(crate) fn has_news(&self) -> bool {
        self.news.load(Relaxed)
    }

    /// Notes that the thread takes all news. Call it under the lock that protects them.
    pub(crate) fn take(&self) {
        self.news.store(false, Relaxed);
    }

    /// Marks the thread as asleep. Returns `false` if it must stay awake because there are news.
    pub(crate) fn fall_asleep(&self) -> bool {
        self.asleep.store(true, Relaxed);
        fence(SeqCst);
        let may = !self.news.load(Relaxed);
        if !may {
            self.wake_up();
        }
        may
    }

    /// Tells whether the thread sleeps, or is about to.
    pub(crate) fn is_asleep(&self) -> bool {
        self.asleep.load(Relaxed)
    }

    /// Marks the thread as awake.
    pub(crate) fn wake_up(&self) {
        self.asleep.store(false, Relaxed);
    }
}
