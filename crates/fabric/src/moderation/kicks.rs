//! The moderator of kicks.

use std::time::{Duration, Instant};

use super::Coalescing;
use super::clock::{self, MAX_DELAY};

/// Shortest wait between two looks. Shorter waits would amount to polling.
const SOONEST: Duration = Duration::from_micros(10);

/// Number of consecutive empty looks after which `dense` considers a guest idle.
const SILENT: u8 = 16;

/// The decision about the next look at a transmit ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// The guest kicks with its next frame, and nobody looks before.
    Kick,
    /// Kicks stay disabled, and the ring is looked at at this time.
    At(Instant),
}

/// The moderator of a transmit queue's kicks.
///
/// Only `static` and `dense` affect kicks. A guest that has sent nothing during one whole wait
/// (`dense`: 16 ticks) may kick again. An idle guest therefore costs nothing, and the first frame
/// after a pause is forwarded at once.
#[derive(Debug)]
pub struct Kicks {
    /// Number of packets that a look should find; `None` if kicks are never disabled.
    packets: Option<u32>,
    /// Long waits end at a common tick.
    dense: bool,
    /// Number of consecutive looks that found nothing.
    silent: u8,
    /// Packets found since the ring was last empty.
    found: u32,
    /// Time at which the ring was last empty.
    last: Option<Instant>,
    /// Half the ring size: a guest must not fill its ring during a wait.
    most: u32,
}

impl Kicks {
    /// Creates the moderator of a ring with `size` entries.
    pub fn new(coalescing: Coalescing, size: u16) -> Self {
        let mut kicks = Self {
            packets: None,
            dense: false,
            silent: 0,
            found: 0,
            last: None,
            most: u32::from(size / 2).max(1),
        };
        kicks.set(coalescing);
        kicks
    }

    /// Changes the scheme. The caller then has a worker look at the ring.
    pub fn set(&mut self, coalescing: Coalescing) {
        (self.dense, self.silent) = (coalescing == Coalescing::Dense, 0);
        self.packets = match coalescing {
            Coalescing::Static { packets } => Some(u32::from(packets).min(self.most)),
            Coalescing::Dense => Some(u32::from(Coalescing::DEFAULT_PACKETS).min(self.most)),
            Coalescing::Disabled | Coalescing::Rbc { .. } | Coalescing::Adapt => None,
        };
    }

    /// Notes the packets that a look found.
    #[inline]
    pub fn found(&mut self, packets: u32) {
        self.found = self.found.saturating_add(packets);
    }

    /// Notes that the ring is empty, and decides about the next look.
    #[inline]
    pub fn emptied(&mut self, now: Instant) -> Look {
        let Some(packets) = self.packets else { return Look::Kick };
        let found = std::mem::take(&mut self.found);
        let last = self.last.replace(now);
        if found == 0 {
            self.silent = self.silent.saturating_add(1);
            let idle = !self.dense || self.silent >= SILENT;
            return if idle { Look::Kick } else { Look::At(clock::tick(now)) };
        }
        self.silent = 0;
        // Scale the time that these packets took to the number of packets wanted.
        let took = last.map_or(MAX_DELAY, |last| now.saturating_duration_since(last).min(MAX_DELAY));
        let wait = (took * packets / found).clamp(SOONEST, MAX_DELAY);
        // A few frames in a row are not yet a stream that fills a batch before the next tick.
        let tick = self.dense && (wait == MAX_DELAY || 4 * found < packets);
        Look::At(if tick { clock::tick(now) } else { now + wait })
    }
}
