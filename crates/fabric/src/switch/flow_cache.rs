//! What was decided a moment ago: the receive queues of senders' simple frames, by their addresses.
//!
//! A worker's own, so nothing is shared and nothing is locked. An answer is good for [`GOOD_FOR`]: so long at the most do
//! frames go on to where an address was before it moved, or was learnt anew. A new configuration forgets everything.

use std::time::{Duration, Instant};

use taut_api::fabric::PortId;

use super::target::Target;
use crate::net::ethernet::MacPair;

/// Long against a burst, short against anything that a guest or a user could wait for.
const GOOD_FOR: Duration = Duration::from_millis(1);
/// Entries, a power of two. Two that share a place take turns.
const SIZE: usize = 512;

#[derive(Debug, Clone, Copy)]
struct Entry {
    macs: MacPair,
    sender: PortId,
    /// Answers of an older generation are none.
    generation: u32,
    target: Target,
}

/// A worker's flow_cache decisions.
#[derive(Debug)]
pub struct FlowCache {
    entries: Box<[Entry; SIZE]>,
    generation: u32,
    until: Instant,
}

impl Default for FlowCache {
    fn default() -> Self {
        let nothing = Entry {
            macs: MacPair::default(),
            sender: PortId(0),
            generation: 0,
            target: Target { member: 0, pair: 0 },
        };
        Self { entries: Box::new([nothing; SIZE]), generation: 1, until: Instant::now() + GOOD_FOR }
    }
}

impl FlowCache {
    /// Forgets everything.
    pub fn forget(&mut self, now: Instant) {
        self.until = now + GOOD_FOR;
        self.generation = self.generation.wrapping_add(1);
        if self.generation == 0 {
            // Once in weeks: no entry may be mistaken for a new one.
            *self = Self::default();
        }
    }

    /// A burst begins.
    #[inline]
    pub fn begin(&mut self, now: Instant) {
        if now >= self.until {
            self.forget(now);
        }
    }

    /// What was decided on a frame like this.
    #[inline(always)]
    pub fn find(&self, sender: PortId, macs: MacPair) -> Option<Target> {
        let entry = &self.entries[macs.place::<SIZE>()];
        let same = entry.macs == macs && entry.sender == sender && entry.generation == self.generation;
        same.then_some(entry.target)
    }

    /// Remembers a decision.
    pub fn insert(&mut self, sender: PortId, macs: MacPair, target: Target) {
        let generation = self.generation;
        self.entries[macs.place::<SIZE>()] = Entry { macs, sender, generation, target };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn macs(dst: u8, src: u8) -> MacPair {
        MacPair::of(&[2, 0, 0, 0, 0, dst, 2, 0, 0, 0, 0, src, 8, 0])
    }

    #[test]
    fn an_answer_is_the_senders_own_and_ages() {
        let now = Instant::now();
        let mut flow_cache = FlowCache::default();
        flow_cache.begin(now);
        let target = Target { member: 7, pair: 0 };
        flow_cache.insert(PortId(1), macs(1, 2), target);
        assert_eq!(flow_cache.find(PortId(1), macs(1, 2)), Some(target));
        assert_eq!(flow_cache.find(PortId(2), macs(1, 2)), None, "another sender's");
        assert_eq!(flow_cache.find(PortId(1), macs(1, 3)), None, "from another address");
        assert_eq!(flow_cache.find(PortId(1), macs(3, 2)), None, "to another address");
        flow_cache.begin(now + 2 * GOOD_FOR);
        assert_eq!(flow_cache.find(PortId(1), macs(1, 2)), None, "too old");
        flow_cache.insert(PortId(1), macs(1, 2), target);
        flow_cache.forget(now);
        assert_eq!(flow_cache.find(PortId(1), macs(1, 2)), None, "another configuration");
    }

    #[test]
    fn generations_never_meet_again() {
        let mut flow_cache = FlowCache { generation: u32::MAX, ..FlowCache::default() };
        flow_cache.insert(PortId(1), macs(1, 2), Target { member: 7, pair: 0 });
        flow_cache.forget(Instant::now());
        assert_eq!((flow_cache.generation, flow_cache.find(PortId(1), macs(1, 2))), (1, None));
    }
}
