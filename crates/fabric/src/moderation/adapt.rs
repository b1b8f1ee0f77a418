//! `adapt`: the batch follows the load.
//!
//! The batch is the number of packets that come within [`ADAPT_MAX_DELAY`], and no packet waits
//! longer than that.

use std::time::{Duration, Instant};

use super::clock::MAX_DELAY;
use super::pending::PendingInterrupt;

/// Largest batch in packets (ESX: `Net.CoalesceRxQDepthCap`, `Net.CoalesceTxQDepthCap`).
const MOST: u32 = 40;
/// Longest time that `adapt` holds an interrupt back.
pub(super) const ADAPT_MAX_DELAY: Duration = Duration::from_micros(50);
/// Length of the window in which packets are counted (ESX: `Net.CoalesceTxTimeout`).
const WINDOW: Duration = MAX_DELAY;

/// The state of the scheme.
#[derive(Debug)]
pub(super) struct Adapt {
    /// The current batch, in packets.
    batch: u32,
    /// Beginning of the window.
    since: Option<Instant>,
    /// Packets in the window.
    packets: u32,
}

impl Default for Adapt {
    fn default() -> Self {
        Self { batch: 1, since: None, packets: 0 }
    }
}

impl Adapt {
    /// Counts packets.
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

    /// The latest time for a pending interrupt.
    #[inline]
    pub(super) fn latest(&self, pending: &PendingInterrupt) -> Instant {
        if pending.packets >= self.batch { pending.since } else { pending.since + ADAPT_MAX_DELAY }
    }

    /// Notes that an interrupt was sent.
    #[inline]
    pub(super) fn sent(&mut self, now: Instant, pending: &PendingInterrupt) {
        // No packet came during the delay, so the sender probably waits for an answer. The next
        // window decides again.
        if now > pending.since && pending.packets == pending.first {
            self.batch = 1;
        }
    }
}
