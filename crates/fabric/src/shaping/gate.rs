//! The first step from a shaped guest: a frame that does not conform stays in the guest's ring.

use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use super::PAUSE;
use super::shaper::Shaper;
use crate::sys::lock::lock;

/// A sender's shaper, locked for one burst, or no shaper.
#[derive(Debug)]
pub struct Gate<'p> {
    shaper: Option<MutexGuard<'p, Shaper>>,
    now: Instant,
}

impl<'p> Gate<'p> {
    /// Locks the shaper for a burst at `now`.
    #[inline]
    pub fn new(shaper: Option<&'p Mutex<Shaper>>, now: Instant) -> Self {
        let shaper = shaper.map(lock);
        Self { shaper, now }
    }

    /// Tells whether the sender has no shaper, so that every frame may pass. For a sender with a
    /// shaper this is `false` even while frames conform; [`Self::closed_until`] and [`Self::pass`]
    /// decide about its frames.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.shaper.is_none()
    }

    /// The time to come back for a frame of `len` bytes; `None` means that it may pass now.
    #[inline]
    pub fn closed_until(&self, len: usize) -> Option<Instant> {
        Some(self.shaper.as_ref()?.conforms(self.now, len)? + PAUSE)
    }

    /// Counts how many frames of these lengths may pass in a row, and returns the time to come back
    /// for the next one.
    pub fn pass(&self, lens: impl Iterator<Item = usize>) -> (usize, Option<Instant>) {
        let Some(shaper) = self.shaper.as_deref() else { return (lens.count(), None) };
        let mut trial = shaper.clone();
        let mut frames = 0;
        for len in lens {
            if let Some(when) = trial.conforms(self.now, len) {
                return (frames, Some(when + PAUSE));
            }
            trial.spend(self.now, len);
            frames += 1;
        }
        (frames, None)
    }

    /// Charges a frame of `len` bytes that has passed.
    #[inline]
    pub fn spend(&mut self, len: usize) {
        if let Some(shaper) = &mut self.shaper {
            shaper.spend(self.now, len);
        }
    }
}
