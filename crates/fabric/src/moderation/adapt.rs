//! The batch follows the load: as many packets as come within [`ADAPT_MAX_DELAY`], which nothing waits longer than.

use std::time::{Duration, Instant};

use super::clock::MAX_DELAY;
use super::pending::PendingInterrupt;

/// Largest batch (ESX: `Net.CoalesceRxQDepthCap`, `Net.CoalesceTxQDepthCap`).
const MOST: u32 = 40;
/// Longest time that `adapt` holds an interrupt back.
pub(super) const ADAPT_MAX_DELAY: Duration = Duration::from_micros(50);
/// How long packets are counted for (ESX: `Net.CoalesceTxTimeout`).
const WINDOW: Duration = MAX_DELAY;

#[derive(Debug)]
pub(super) struct Adapt {
    batch: u32,
    /// Beginning of the window, and packets in it.
    since: Option<Instant>,
    packets: u32,
}

impl Default for Adapt {
    fn default() -> Self {
        Self { batch: 1, since: None, packets: 0 }
    }
}

impl Adapt {
    /// So many packets came.
    #[inline]
    pub(super) fn count(&mut self, now: Instant, packets: u32) {
        let window = now.saturating_duration_since(*self.since.get_or_insert(now));
        if window >= WINDOW {
            let share = u128::from(self.packets) * ADAPT_MAX_DELAY.as_nanos() / window.as_nanos();
            self.batch = u32::try_from(share).unwrap_or(MOST).clamp(1, MOST);
            (self.since, self.packets) = (Some(now), 0);
        }
        self.packets = self.packets.saturating_add(packets);
    }

    /// When the interrupt goes out at the latest.
    #[inline]
    pub(super) fn latest(&self, pending: &PendingInterrupt) -> Instant {
        if pending.packets >= self.batch { pending.since } else { pending.since + ADAPT_MAX_DELAY }
    }

    /// It went out.
    #[inline]
    pub(super) fn sent(&mut self, now: Instant, pending: &PendingInterrupt) {
        // Nothing came while it was held back: most likely the sender waits for an answer. The next window tells.
        if now > pending.since && pending.packets == pending.first {
            self.batch = 1;
        }
    }
}
