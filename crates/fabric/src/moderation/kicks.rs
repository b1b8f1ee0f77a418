//! When the guest may kick.

use std::time::{Duration, Instant};

use super::Coalescing;
use super::clock::{self, MAX_DELAY};

/// Looking more often than that is polling.
const SOONEST: Duration = Duration::from_micros(10);

/// Looks in a row that find nothing, after which `dense` takes a guest for idle.
const SILENT: u8 = 16;

/// May the guest kick?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// With its next frame; until then nobody looks.
    Kick,
    /// It is spared that: its ring is looked at, at this time.
    At(Instant),
}

/// The moderator of a transmit queue's kicks.
///
/// Only `static` and `dense` have any effect on them. A guest that has sent nothing for one whole wait (`dense`: for 16 ticks) may kick
/// again, so an idle guest costs nothing, and the first frame after a pause is on its way at once.
#[derive(Debug)]
pub struct Kicks {
    /// Packets that a look should find; `None`: kicks are welcome.
    packets: Option<u32>,
    /// Long waits end with a common tick.
    dense: bool,
    /// Looks in a row that found nothing.
    silent: u8,
    /// Packets found since the ring was last empty.
    found: u32,
    /// When that was.
    last: Option<Instant>,
    /// Half the ring: a guest whose ring is full can send nothing.
    most: u32,
}

impl Kicks {
    /// The moderator of a ring of `size` entries.
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

    /// Another scheme. The ring is to be looked at, soon.
    pub fn set(&mut self, coalescing: Coalescing) {
        (self.dense, self.silent) = (coalescing == Coalescing::Dense, 0);
        self.packets = match coalescing {
            Coalescing::Static { packets } => Some(u32::from(packets).min(self.most)),
            Coalescing::Dense => Some(u32::from(Coalescing::DEFAULT_PACKETS).min(self.most)),
            Coalescing::Disabled | Coalescing::Rbc { .. } | Coalescing::Adapt => None,
        };
    }

    /// A look has found so many packets.
    #[inline]
    pub fn found(&mut self, packets: u32) {
        self.found = self.found.saturating_add(packets);
    }

    /// The ring is empty now.
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
        // As long as it took to find these, and as many more or fewer packets.
        let took = last.map_or(MAX_DELAY, |last| now.saturating_duration_since(last).min(MAX_DELAY));
        let wait = (took * packets / found).clamp(SOONEST, MAX_DELAY);
        // One frame soon after another is not yet a stream that fills a batch before the next tick.
        let tick = self.dense && (wait == MAX_DELAY || 4 * found < packets);
        Look::At(if tick { clock::tick(now) } else { now + wait })
    }
}
