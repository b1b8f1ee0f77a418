//! Who has what: free descriptors (their ids, in a packed ring), and the chains that are with the device.

use std::collections::VecDeque;

use super::{Used, UsedFault};

/// Bookkeeping of a queue, the same for both formats: a chain takes a slot for each of its descriptors and is known by its
/// first one.
#[derive(Debug)]
pub(super) struct Slots {
    /// The device returns chains in the order in which it was given them (`IN_ORDER`), several by one entry.
    in_order: bool,
    /// In order: the next one first, so that the ring is used round and round (2.7.5.2). Otherwise the next one last: the
    /// one that came back last is still in the caches.
    free: VecDeque<u16>,
    /// Per slot: the chain that begins there, if it is with the device.
    chains: Vec<Chain>,
    /// Per slot: the one behind it in its chain.
    next: Vec<u16>,
    /// In order: the chains with the device, the oldest first.
    given: VecDeque<u16>,
    /// In order: the last chain of the batch that is being returned.
    batch: Option<Used>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Chain {
    /// Slots; 0 if it is not with the device.
    count: u16,
    /// Bytes that the device may write.
    room: u32,
}

impl Slots {
    pub(super) fn new(size: u16, in_order: bool) -> Self {
        let free = if in_order { (0..size).collect() } else { (0..size).rev().collect() };
        let given = VecDeque::with_capacity(if in_order { size.into() } else { 0 });
        let (chains, next) = (vec![Chain::default(); size.into()], vec![0; size.into()]);
        Self { in_order, free, chains, next, given, batch: None }
    }

    /// Free slots.
    #[inline]
    pub(super) fn free(&self) -> usize {
        self.free.len()
    }

    /// The slot that is taken after `ahead` others.
    #[inline]
    pub(super) fn upcoming(&self, ahead: usize) -> Option<u16> {
        let at = if self.in_order { Some(ahead) } else { self.free.len().checked_sub(ahead + 1) };
        self.free.get(at?).copied()
    }

    /// Takes the slots of a chain that has `count` descriptors and gives it to the device; the device may write `room`
    /// bytes. Returns its head, or `None` if there are too few.
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

    /// The slot behind this one in its chain.
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
            // Nothing was said of it: it counts as used completely (2.7.9, 2.8.11).
            Used { head, written: self.chains[usize::from(head)].room }
        };
        Some((used, self.take_back(head)))
    }

    /// The device has returned this chain, or in order all up to this one. Gives the first of them, and its slots.
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
