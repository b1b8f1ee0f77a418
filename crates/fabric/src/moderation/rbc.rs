//! `rbc`, rate-based coalescing: interrupts keep a distance, as long as that gathers frames.
//!
//! In request-and-response traffic each frame is sent after the answer to the one before. Holding
//! one back delays all that follow and saves no interrupt: the interrupt goes out with the packets
//! that it came with. After a series of such *fruitless* waits the moderator stops delaying for a
//! while (a *spell*). Then it delays one interrupt again, to see whether the traffic has changed.

use std::time::{Duration, Instant};

use super::pending::PendingInterrupt;

/// Number of consecutive fruitless waits that start a spell.
///
/// Random arrivals at 1.5 times the rate produce such a series with a probability below 1 %.
const ENOUGH: u8 = 8;
/// Length of the first spell, in interrupts.
const SPELL: u32 = 64;
/// Length of the longest spell. One delayed interrupt in 1024 does not affect the 99.9th
/// percentile.
const LONGEST_SPELL: u32 = 1024;

/// The state of the scheme.
#[derive(Debug)]
pub(super) struct Rbc {
    /// Shortest distance between interrupts.
    interval: Duration,
    /// Time of the last interrupt.
    last: Option<Instant>,
    /// Number of consecutive fruitless waits.
    fruitless: u8,
    /// Number of interrupts left in the current spell.
    free: u32,
    /// Length of the next spell.
    spell: u32,
}

impl Rbc {
    /// Starts the scheme at a rate in interrupts per second.
    pub(super) fn new(rate: u32) -> Self {
        let interval = Duration::from_secs(1) / rate.max(1);
        Self { interval, last: None, fruitless: 0, free: 0, spell: SPELL }
    }

    /// The latest time for a pending interrupt.
    #[inline]
    pub(super) fn latest(&self, pending: &PendingInterrupt) -> Instant {
        match self.last {
            Some(last) if self.free == 0 => last + self.interval,
            _ => pending.since,
        }
    }

    /// Notes that an interrupt was sent.
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
