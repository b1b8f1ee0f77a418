//! The device end of a split ring (2.7).

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use super::chain::{Chain, Chains, Part};
use super::{QueueConfig, Start};
use crate::fault::{QueueError, RingFault};
use crate::features;
use crate::memory::prefetch::LINE;
use crate::memory::{Area, GuestMemory};
use crate::split::{self, DESC_INDIRECT, DESC_NEXT, DESC_WRITE, Descriptor};

/// The device end of a split ring. Chains are returned in the order in which they were fetched, but for those of sockets.
#[derive(Debug)]
pub(super) struct SplitRing {
    size: u16,
    event_idx: bool,
    desc: Area<16>,
    avail: Area<2>,
    used: Area<4>,
    /// Next available entry to fetch.
    next_avail: u16,
    /// Available index as last read.
    seen_avail: u16,
    /// Next used entry to write.
    next_used: u16,
    /// Used index as the driver sees it.
    published: u16,
    /// Used index when the driver was last told, or found not to want it.
    signalled: u16,
}

impl Descriptor {
    fn part(self) -> Part {
        Part { addr: self.addr, len: self.len, writable: self.has(DESC_WRITE) }
    }
}

impl SplitRing {
    pub(super) fn new(memory: &Arc<GuestMemory>, config: &QueueConfig) -> Result<Self, QueueError> {
        let size = config.size;
        if !size.is_power_of_two() || size > split::MAX_SIZE {
            return Err(QueueError::Size(size));
        }
        let event_idx = config.features & features::EVENT_IDX != 0;
        let [desc_len, avail_len, used_len] = split::area_lengths(size, event_idx);
        let mut ring = Self {
            size,
            event_idx,
            desc: split::area(memory, "descriptor table", config.desc, desc_len)?,
            avail: split::area(memory, "available ring", config.avail, avail_len)?,
            used: split::area(memory, "used ring", config.used, used_len)?,
            next_avail: 0,
            seen_avail: 0,
            next_used: 0,
            published: 0,
            signalled: 0,
        };
        let position = match config.start {
            Start::At(position) => position,
            Start::Recover => ring.used.load_u16(split::INDEX, Ordering::Acquire),
        };
        (ring.next_avail, ring.seen_avail, ring.next_used) = (position, position, position);
        (ring.published, ring.signalled) = (position, position);
        Ok(ring)
    }

    pub(super) fn position(&self) -> u16 {
        self.next_used
    }

    /// Entries.
    pub(super) fn size(&self) -> u16 {
        self.size
    }

    /// Position of the next entry to fetch. Other than [`Self::position`] only while chains are in flight.
    pub(super) fn available_position(&self) -> u16 {
        self.next_avail
    }

    /// The used index as it is in guest memory.
    pub(super) fn used_index(&self) -> u16 {
        self.used.load_u16(split::INDEX, Ordering::Acquire)
    }

    /// The available index as it is in guest memory, not checked.
    pub(super) fn avail_index(&self) -> u16 {
        self.avail.load_u16(split::INDEX, Ordering::Acquire)
    }

    /// The head in an entry of the used ring, not checked.
    pub(super) fn used_head(&self, position: u16) -> u16 {
        self.used.load_u32(split::used_at(position, self.size)) as u16
    }

    /// The head in an entry of the available ring, not checked.
    #[inline(always)]
    pub(super) fn avail_head(&self, position: u16) -> u16 {
        self.avail.load_u16(split::avail_at(position, self.size), Ordering::Relaxed)
    }

    /// Writes a head into an entry of the used ring that the driver does not see, and may never see there.
    pub(super) fn write_used_head(&self, position: u16, head: u16) {
        self.used.store_u32(split::used_at(position, self.size), head.into());
    }

    /// Goes on from this used index with so many chains in flight, which were fetched before. Chains of such a ring come back
    /// in any order.
    pub(super) fn resume(&mut self, used: u16, in_flight: u16) {
        (self.next_used, self.published, self.signalled) = (used, used, used);
        let next = used.wrapping_add(in_flight);
        (self.next_avail, self.seen_avail) = (next, next);
    }

    /// The head in the next available entry, not checked; `None` when there is none.
    #[inline]
    pub(super) fn next_head(&mut self) -> Result<Option<u16>, RingFault> {
        Ok((self.available(1)? > 0).then(|| self.avail_head(self.next_avail)))
    }

    /// Goes on behind the entry that [`Self::next_head`] found.
    #[inline]
    pub(super) fn pass_available(&mut self) {
        self.next_avail = self.next_avail.wrapping_add(1);
        self.prefetch(self.next_used, 1);
    }

    /// Checks the chain from a head, once more each time.
    #[inline]
    pub(super) fn look(&self, chains: &mut Chains, head: u16, out: &mut Chain) -> Result<(), RingFault> {
        let one = std::slice::from_mut(out);
        if self.near(chains, usize::MAX, one, |_| head) == 1 { Ok(()) } else { self.chain(chains, head, out) }
    }

    /// How many entries are left to fetch, after a look at the available index unless `wanted` of them are known to be
    /// there: the line of the index is nearly always with the driver. Fetched entries are not read again.
    #[inline]
    fn available(&mut self, wanted: usize) -> Result<u16, RingFault> {
        let known = self.seen_avail.wrapping_sub(self.next_avail);
        if usize::from(known) >= wanted {
            return Ok(known);
        }
        // Acquire: the entries and descriptors were written before the index.
        let index = self.avail.load_u16(split::INDEX, Ordering::Acquire);
        let outstanding = index.wrapping_sub(self.next_used);
        // Neither more than fit, nor fewer than have been fetched already.
        if outstanding > self.size || outstanding < self.seen_avail.wrapping_sub(self.next_used) {
            return Err(RingFault::AvailIndexJumped { from: self.seen_avail, to: index, size: self.size });
        }
        self.seen_avail = index;
        Ok(index.wrapping_sub(self.next_avail))
    }

    #[inline]
    pub(super) fn fetch(
        &mut self,
        chains: &mut Chains,
        out: &mut [Chain],
        parts: usize,
    ) -> Result<usize, RingFault> {
        let wanted = usize::from(self.available(out.len())?).min(out.len());
        let out = &mut out[..wanted];
        let mut done = 0;
        while done < wanted && chains.segments.len() <= parts {
            let next = self.next_avail.wrapping_add(done as u16);
            let usual =
                self.near(chains, parts, &mut out[done..], |at| self.avail_head(next.wrapping_add(at)));
            done += usual;
            // The first that is something else.
            if done < wanted && chains.segments.len() <= parts {
                let head = self.avail_head(next.wrapping_add(usual as u16));
                match self.chain(chains, head, &mut out[done]) {
                    Ok(()) => done += 1,
                    Err(_) if done > 0 => break,
                    Err(fault) => return Err(fault),
                }
            }
        }
        let first = self.next_avail;
        self.next_avail = first.wrapping_add(done as u16);
        self.prefetch(first, done);
        Ok(done)
    }

    /// After a burst of `count` chains: asks for the used entries that they will get, from `used` on, and for the descriptors of the next
    /// burst, as far as the driver has written them: those that it has still to write are better left with it.
    #[inline]
    fn prefetch(&self, used: u16, count: usize) {
        for position in (0..count as u16).step_by(LINE / 8) {
            let entry = split::used_at(used.wrapping_add(position), self.size);
            self.used.prefetch_for_write(entry);
        }
        let left = self.seen_avail.wrapping_sub(self.next_avail).min(count as u16);
        for position in (0..left).step_by(LINE / split::DESC_LEN) {
            let entry = split::avail_at(self.next_avail.wrapping_add(position), self.size);
            self.desc.prefetch(split::desc_at(self.avail.load_u16(entry, Ordering::Relaxed)));
        }
    }

    /// The usual chains, one buffer near the last one each, as many as come first; returns how many.
    #[inline(always)]
    fn near(&self, chains: &mut Chains, parts: usize, out: &mut [Chain], head: impl Fn(u16) -> u16) -> usize {
        chains.near(parts, out, |number| {
            let head = head(number);
            self.descriptor(head).map(|Descriptor { addr, len, flags, .. }| (head, addr, len, flags))
        })
    }

    /// Any chain. It is read anew: what a first look found may have changed, and is forgotten.
    #[cold]
    fn chain(&self, chains: &mut Chains, head: u16, out: &mut Chain) -> Result<(), RingFault> {
        let outside = RingFault::HeadOutOfRange { head, size: self.size };
        let descriptor = self.descriptor(head).ok_or(outside)?;
        if descriptor.has(DESC_NEXT | DESC_INDIRECT) {
            self.walk(chains, head, descriptor, out)
        } else {
            chains.single(head, descriptor.part(), out)
        }
    }

    /// A descriptor of the table, which ends with the last one.
    #[inline]
    fn descriptor(&self, index: u16) -> Option<Descriptor> {
        self.desc.load_u64_pair(split::desc_at(index)).map(Descriptor::from_words)
    }

    fn walk(
        &self,
        chains: &mut Chains,
        head: u16,
        descriptor: Descriptor,
        out: &mut Chain,
    ) -> Result<(), RingFault> {
        let first = chains.begin();
        match self.walk_on(chains, first, head, descriptor) {
            Ok(len) => chains.end(first, head, len, out),
            Err(fault) => {
                chains.abandon(first);
                Err(fault)
            }
        }
    }

    /// Walks a chain of several descriptors, the last of which may be an indirect table; returns its length.
    fn walk_on(
        &self,
        chains: &mut Chains,
        first: usize,
        head: u16,
        mut descriptor: Descriptor,
    ) -> Result<u64, RingFault> {
        let mut table: Option<u64> = None;
        let mut size = self.size;
        let mut walked = 1;
        let mut len = 0;
        loop {
            let next = if descriptor.has(DESC_INDIRECT) {
                if table.is_some() {
                    return Err(RingFault::NestedIndirect { head });
                }
                size =
                    chains.check_table(head, descriptor.addr, descriptor.len, descriptor.has(DESC_NEXT))?;
                table = Some(descriptor.addr);
                walked = 0;
                0
            } else {
                len += u64::from(chains.push_another(first, head, descriptor.part())?);
                if !descriptor.has(DESC_NEXT) {
                    return Ok(len);
                }
                descriptor.next
            };
            if next >= size {
                return Err(RingFault::NextOutOfRange { next, size });
            }
            if walked == size {
                return Err(RingFault::DescriptorLoop { head, size });
            }
            walked += 1;
            descriptor = match table {
                None => self.descriptor(next).ok_or(RingFault::NextOutOfRange { next, size })?,
                Some(table) => Descriptor::from_words(chains.table_entry(table, next)?),
            };
        }
    }

    #[inline]
    pub(super) fn push_used(&mut self, used: impl ExactSizeIterator<Item = (Chain, u32)>) {
        let count = used.len();
        let mut entries = used.map(|(chain, written)| [u32::from(chain.id), written]);
        let before_end = usize::from(self.size - (self.next_used & (self.size - 1))).min(count);
        self.used.store_u32_pairs(split::used_at(self.next_used, self.size), before_end, &mut entries);
        self.used.store_u32_pairs(split::ENTRIES, count - before_end, &mut entries);
        self.next_used = self.next_used.wrapping_add(count as u16);
    }

    /// Returns a batch of so many chains, of which this is the last one, by one used entry: where the first one's would be
    /// (2.7.9).
    #[inline]
    pub(super) fn push_batch(&mut self, last: Chain, chains: u16) {
        let entry = split::used_at(self.next_used, self.size);
        self.used.store_u32(entry, u32::from(last.id));
        self.used.store_u32(entry + 4, 0);
        self.next_used = self.next_used.wrapping_add(chains);
    }

    #[inline]
    pub(super) fn publish(&mut self) {
        if self.published != self.next_used {
            // Release: entries and payload before the index.
            self.used.store_u16(split::INDEX, self.next_used, Ordering::Release);
            self.published = self.next_used;
        }
    }

    #[inline]
    pub(super) fn needs_interrupt(&mut self) -> bool {
        if self.published == self.signalled {
            return false;
        }
        // The index must be visible before the driver's wish is read: either we see its new wish, or it, after
        // stating the wish, sees our index.
        fence(Ordering::SeqCst);
        let old = std::mem::replace(&mut self.signalled, self.published);
        if self.event_idx {
            let event = self.avail.load_u16(split::used_event_at(self.size), Ordering::Relaxed);
            split::passed_event(event, self.published, old)
        } else {
            self.avail.load_u16(split::FLAGS, Ordering::Relaxed) & split::AVAIL_NO_INTERRUPT == 0
        }
    }

    pub(super) fn suspend_kicks(&mut self) {
        // With EVENT_IDX the threshold simply stays behind: the driver has passed it and does not pass it again.
        if !self.event_idx {
            self.used.store_u16(split::FLAGS, split::USED_NO_NOTIFY, Ordering::Relaxed);
        }
    }

    pub(super) fn arm_kicks(&mut self) -> bool {
        if self.event_idx {
            self.used.store_u16(split::avail_event_at(self.size), self.seen_avail, Ordering::Relaxed);
        } else {
            self.used.store_u16(split::FLAGS, 0, Ordering::Relaxed);
        }
        // The wish must be visible before the index is read again, or a buffer that comes now is missed by both.
        fence(Ordering::SeqCst);
        self.avail.load_u16(split::INDEX, Ordering::Relaxed) != self.seen_avail
    }
}
