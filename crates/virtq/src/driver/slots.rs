//! Bookkeeping of free descriptors (free IDs in a packed ring) and of the chains with the device.

use std::collections::VecDeque;

use super::{Used, UsedFault};

/// Slots of a queue in either format. A chain takes a slot for each of its descriptors; its first
/// slot is its name.
#[derive(Debug)]
pub(super) struct Slots {
    /// True if the device returns chains in the order in which it got them (`IN_ORDER`), several by
    /// one entry.
    in_order: bool,
    /// Free slots. In order, the next one is first, so that the ring is used round-robin (2.7.5.2).
    /// Otherwise the next one is last: the slot that came back last is still in the caches.
    free: VecDeque<u16>,
    /// For each slot, the chain that begins there, if it is with the device.
    chains: Vec<Chain>,
    /// For each slot, the next slot in its chain.
    next: Vec<u16>,
    /// The chains with the device, the oldest first. Used in order only.
    given: VecDeque<u16>,
    /// The last chain of the batch that is being returned. Used in order only.
    batch: Option<Used>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Chain {
    /// Number of slots; 0 if the chain is not with the device.
    count: u16,
    /// Number of bytes that the device may write.
    room: u32,
}

impl Slots {
    pub(super) fn new(size: u16, in_order: bool) -> Self {
        let free = if in_order { (0..size).collect() } else { (0..size).rev().collect() };
        let given = VecDeque::with_capacity(if in_order { size.into() } else { 0 });
        let (chains, next) = (vec![Chain::default(); size.into()], vec![0; size.into()]);
        Self { in_order, free, chains, next, given, batch: None }
    }

    /// Number of free slots.
    #[inline]
    pub(super) fn free(&self) -> usize {
        self.free.len()
    }

    /// The free slot that is taken after `ahead` others.
    #[inline]
    pub(super) fn upcoming(&self, ahead: usize) -> Option<u16> {
        let at = if self.in_order { Some(ahead) } else { self.free.len().checked_sub(ahead + 1) };
        self.free.get(at?).copied()
    }

    /// Takes slots for a chain of `count` descriptors, in which the device may write `room` bytes.
    /// Returns its head, or `None` if there are too few free slots.
    #[inline]
    pub(super) fn give(&mut self, count: usize, room: u32) -> Option<u16> {
        if count == 0 || count > self.free.len() {
            return None;
        }
        let head = self.take()?;
        let mut last = head;
        for _ in 1..count {
            let slot = self.take()?;
            self.next[usize::from(last)] = slot;
            last = slot;
        }
        self.chains[usize::from(head)] = Chain { count: count as u16, room };
        if self.in_order {
            self.given.push_back(head);
        }
        Some(head)
    }

    #[inline]
    fn take(&mut self) -> Option<u16> {
        if self.in_order { self.free.pop_front() } else { self.free.pop_back() }
    }

    /// The next slot in the chain of `slot`.
    #[inline]
    pub(super) fn behind(&self, slot: u16) -> u16 {
        self.next[usize::from(slot)]
    }

    /// The next chain of a batch that the device has returned by one entry.
    #[inline]
    pub(super) fn rest_of_batch(&mut self) -> Option<(Used, u16)> {
        let last = self.batch?;
        // The last chain is with the device, so it comes.
        let head = self.given.pop_front()?;
        let used = if head == last.head {
            self.batch = None;
            last
        } else {
            // The device did not report its length: it counts as used completely (2.7.9, 2.8.11).
            Used { head, written: self.chains[usize::from(head)].room }
        };
        Some((used, self.take_back(head)))
    }

    /// Takes back the chain `id`; in order, all chains up to it. Returns the first of them and the
    /// number of its slots.
    #[inline]
    pub(super) fn returned(&mut self, id: u32, written: u32) -> Result<(Used, u16), UsedFault> {
        let unknown = UsedFault::Unknown { id };
        if self.chains.get(id as usize).is_none_or(|chain| chain.count == 0) {
            return Err(unknown);
        }
        let used = Used { head: id as u16, written };
        if self.in_order {
            self.batch = Some(used);
            return self.rest_of_batch().ok_or(unknown);
        }
        Ok((used, self.take_back(used.head)))
    }

    #[inline]
    fn take_back(&mut self, head: u16) -> u16 {
        let Chain { count, .. } = std::mem::take(&mut self.chains[usize::from(head)]);
        let mut slot = head;
        for _ in 0..count {
            self.free.push_back(slot);
            slot = self.next[usize::from(slot)];
        }
        count
    }
}
