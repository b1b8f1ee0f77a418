//! The first step from a shaped guest: a frame that does not conform stays where it is, and its sender with it.

use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use super::PAUSE;
use super::shaper::Shaper;
use crate::sys::lock::lock;

/// A sender's shaper, held for one burst; or none.
#[derive(Debug)]
pub struct Gate<'p> {
    shaper: Option<MutexGuard<'p, Shaper>>,
    now: Instant,
}

impl<'p> Gate<'p> {
    /// For a burst at `now`.
    #[inline]
    pub fn new(shaper: Option<&'p Mutex<Shaper>>, now: Instant) -> Self {
        let shaper = shaper.map(lock);
        Self { shaper, now }
    }

    /// Is nothing limited?
    #[inline]
    pub fn is_open(&self) -> bool {
        self.shaper.is_none()
    }

    /// When to come back for a frame of `len` bytes; `None`: it may pass now.
    #[inline]
    pub fn closed_until(&self, len: usize) -> Option<Instant> {
        Some(self.shaper.as_ref()?.conforms(self.now, len)? + PAUSE)
    }

    /// How many of the next frames, of these lengths, may pass in a row; and when to come back for the one behind them.
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

    /// A frame of `len` bytes has passed.
    #[inline]
    pub fn spend(&mut self, len: usize) {
        if let Some(shaper) = &mut self.shaper {
            shaper.spend(self.now, len);
        }
    }
}
