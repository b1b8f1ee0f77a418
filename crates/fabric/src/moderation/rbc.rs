//! Rate based: interrupts keep a distance, as long as that gathers frames.
//!
//! Where each frame is sent only after the one before was answered, a frame that is held back holds back all that would
//! follow: waiting costs its full time and saves nothing. That shows: the interrupt goes out with the packets that it
//! came with. After a series of such *fruitless* waits there is none for a while; then one interrupt is held back again,
//! to see whether that is still so.

use std::time::{Duration, Instant};

use super::pending::PendingInterrupt;

/// So many fruitless waits in a row are no accident. (Frames that come at random do it with less than a percent, at one
/// and a half times the rate.)
const ENOUGH: u8 = 8;
/// Interrupts that are not held back after that.
const SPELL: u32 = 64;
/// The same, when it went on to be so; one in so many is too rare for the 99.9th percentile.
const LONGEST_SPELL: u32 = 1024;

#[derive(Debug)]
pub(super) struct Rbc {
    interval: Duration,
    last: Option<Instant>,
    fruitless: u8,
    /// Interrupts that will not be held back.
    free: u32,
    spell: u32,
}

impl Rbc {
    pub(super) fn new(rate: u32) -> Self {
        let interval = Duration::from_secs(1) / rate.max(1);
        Self { interval, last: None, fruitless: 0, free: 0, spell: SPELL }
    }

    /// When the interrupt goes out at the latest.
    #[inline]
    pub(super) fn latest(&self, pending: &PendingInterrupt) -> Instant {
        match self.last {
            Some(last) if self.free == 0 => last + self.interval,
            _ => pending.since,
        }
    }

    /// It went out.
    #[inline]
    pub(super) fn sent(&mut self, now: Instant, pending: &PendingInterrupt) {
        let early = self.last.is_some_and(|last| now < last + self.interval);
        if now <= pending.since {
            if early {
                self.free = self.free.saturating_sub(1);
            }
        } else if pending.packets > pending.first {
            (self.fruitless, self.free, self.spell) = (0, 0, SPELL);
        } else if self.fruitless + 1 < ENOUGH {
            self.fruitless += 1;
        } else {
            self.free = self.spell;
            self.spell = (2 * self.spell).min(LONGEST_SPELL);
        }
        self.last = Some(now);
    }
}
