//! Agreement between an end that waits and the other one, which signals.
//!
//! Either the other end sees the announcement after it has published, and signals, or the waiting
//! end sees what was published when it looks again. `tests/loom` tries every order of the steps.

use super::atomic::{AtomicU32, Relaxed, SeqCst, fence};

/// The waiting end's side of a wait word. An odd number announces a wait; each announcement has
/// another number.
#[derive(Debug)]
pub(crate) struct Waiter {
    number: u32,
}

impl Waiter {
    /// Begins with the number that the word has.
    #[inline]
    pub(crate) fn new(number: u32) -> Self {
        Self { number }
    }

    /// Number of the last announcement or its end.
    #[inline]
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Announces a wait, by a number that has not been signalled. The caller looks again before it
    /// sleeps, and announces again before it sleeps again.
    #[inline]
    pub(crate) fn wait(&mut self, word: &AtomicU32) {
        self.number = self.number.wrapping_add(if self.is_waiting() { 2 } else { 1 });
        word.store(self.number, Relaxed);
        fence(SeqCst);
    }

    /// Ends the wait, if one is announced.
    #[inline]
    pub(crate) fn stop(&mut self, word: &AtomicU32) {
        if self.is_waiting() {
            self.number = self.number.wrapping_add(1);
            word.store(self.number, Relaxed);
        }
    }

    /// Tells whether a wait is announced.
    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        !self.number.is_multiple_of(2)
    }
}

/// The signalling end's side of a wait word.
#[derive(Debug)]
pub(crate) struct Signaller {
    /// Number at the last look. An odd one has been signalled.
    seen: u32,
}

impl Signaller {
    /// A side that has not signalled yet.
    #[inline]
    pub(crate) fn new() -> Self {
        Self { seen: 0 }
    }

    /// A side that goes on with the number that another one has seen last.
    #[inline]
    pub(crate) fn resume(seen: u32) -> Self {
        Self { seen }
    }

    /// Number at the last look.
    #[inline]
    pub(crate) fn seen(&self) -> u32 {
        self.seen
    }

    /// Tells whether the other end has announced a wait that has not been signalled.
    pub(crate) fn is_awaited(&self, word: &AtomicU32) -> bool {
        let number = word.load(Relaxed);
        !number.is_multiple_of(2) && number != self.seen
    }

    /// Tells whether the other end waits and has not been signalled since it announced that. Call
    /// it after publishing, and signal if it returns `true`. All values of the word are valid.
    #[inline]
    pub(crate) fn must_signal(&mut self, word: &AtomicU32) -> bool {
        fence(SeqCst);
        let number = word.load(Relaxed);
        let due = !number.is_multiple_of(2) && number != self.seen;
        self.seen = number;
        due
    }
}
