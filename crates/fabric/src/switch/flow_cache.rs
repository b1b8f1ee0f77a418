//! A cache of recent forwarding decisions: the receive queue for a pair of MAC addresses.
//!
//! Each worker has its own cache, so nothing is shared and nothing is locked. A decision is valid
//! for one millisecond: for that long, frames may still go to the port that an address has left. A
//! new configuration clears the cache.

use std::time::{Duration, Instant};

use taut_api::fabric::PortId;

use super::index::MemberIdx;
use super::target::Target;
use crate::net::ethernet::MacPair;
use crate::net::queue::PairIdx;

/// Validity of a decision: long against a burst, short against anything that a user waits for.
const GOOD_FOR: Duration = Duration::from_millis(1);
/// Number of entries, a power of two. Two flows that share a place replace each other.
const SIZE: usize = 512;

#[derive(Debug, Clone, Copy)]
struct Entry {
    macs: MacPair,
    sender: PortId,
    /// An entry is valid only if its generation is the current one.
    generation: u32,
    target: Target,
}

/// One worker's recent decisions.
#[derive(Debug)]
pub struct FlowCache {
    entries: Box<[Entry; SIZE]>,
    generation: u32,
    until: Instant,
}

impl Default for FlowCache {
    fn default() -> Self {
        let empty = Entry {
            macs: MacPair::default(),
            sender: PortId(0),
            generation: 0,
            target: Target { member: MemberIdx(0), pair: PairIdx(0) },
        };
        Self { entries: Box::new([empty; SIZE]), generation: 1, until: Instant::now() + GOOD_FOR }
    }
}

impl FlowCache {
    /// Clears the cache.
    pub fn forget(&mut self, now: Instant) {
        self.until = now + GOOD_FOR;
        self.generation = self.generation.wrapping_add(1);
        if self.generation == 0 {
            // The counter has wrapped around: no old entry may become valid again.
            *self = Self::default();
        }
    }

    /// Begins a burst: clears the cache if its decisions are too old.
    #[inline]
    pub fn begin(&mut self, now: Instant) {
        if now >= self.until {
            self.forget(now);
        }
    }

    /// The decision for a sender and a pair of addresses.
    #[inline(always)]
    pub fn find(&self, sender: PortId, macs: MacPair) -> Option<Target> {
        let entry = &self.entries[macs.place::<SIZE>()];
        let same = entry.macs == macs && entry.sender == sender && entry.generation == self.generation;
        same.then_some(entry.target)
    }

    /// Stores a decision.
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
    fn a_decision_is_valid_for_its_sender_and_addresses_and_ages() {
        let mut flow_cache = FlowCache::default();
        let now = flow_cache.until;
        flow_cache.begin(now);
        let target = Target { member: MemberIdx(7), pair: PairIdx::FIRST };
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
    fn no_old_entry_becomes_valid_when_generations_wrap_around() {
        let mut flow_cache = FlowCache { generation: u32::MAX, ..FlowCache::default() };
        flow_cache.insert(PortId(1), macs(1, 2), Target { member: MemberIdx(7), pair: PairIdx::FIRST });
        flow_cache.forget(Instant::now());
        assert_eq!((flow_cache.generation, flow_cache.find(PortId(1), macs(1, 2))), (1, None));
    }
}
