//! The device end of a split ring (2.7).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::chain::{Chain, Chains, Fetch};
use crate::fault::{QueueError, RingFault};
use crate::memory::GuestMemory;
use crate::memory::prefetch::LINE;
use crate::ring::split::{self, Areas, Published};
use crate::ring::{DESC_INDIRECT, DESC_LEN, DESC_NEXT, Descriptor, QueueConfig, Start, desc_at};

/// The device end of a split ring. Network queues return chains in the order in which they fetched
/// them, socket queues in any order.
#[derive(Debug)]
pub(super) struct SplitRing {
    areas: Areas,
    /// Next available entry to fetch.
    next_avail: u16,
    /// Available index as last read.
    seen_avail: u16,
    /// Next used entry to write.
    next_used: u16,
    published: Published,
}

impl SplitRing {
    pub(super) fn new(memory: &Arc<GuestMemory>, config: &QueueConfig) -> Result<Self, QueueError> {
        let addresses = [config.desc, config.avail, config.used];
        let areas = Areas::new(memory, config.size, addresses, config.features)?;
        let position = match config.start {
            Start::At(position) => position,
            Start::Recover => areas.used.load_u16(split::INDEX, Ordering::Acquire),
        };
        Ok(Self {
            areas,
            next_avail: position,
            seen_avail: position,
            next_used: position,
            published: Published::up_to(position),
        })
    }

    /// Position of the next entry to return.
    pub(super) fn position(&self) -> u16 {
        self.next_used
    }

    /// Number of entries.
    pub(super) fn size(&self) -> u16 {
        self.areas.size
    }

    /// Fetches waiting chains and returns how many. See [`super::ring::Ring::fetch`].
    #[inline]
    pub(super) fn fetch(&mut self, into: Fetch<'_>) -> Result<usize, RingFault> {
        let Fetch { chains, out, parts } = into;
        let wanted = usize::from(self.available(out.len())?).min(out.len());
        let out = &mut out[..wanted];
        let mut done = 0;
        while done < wanted && chains.spans.len() <= parts {
            let next = self.next_avail.wrapping_add(done as u16);
            let singles = self
                .fetch_singles(chains, parts, &mut out[done..], |at| self.avail_head(next.wrapping_add(at)));
            done += singles;
            // The first chain of another kind.
            if done < wanted && chains.spans.len() <= parts {
                let head = self.avail_head(next.wrapping_add(singles as u16));
                match self.fetch_any(chains, head, &mut out[done]) {
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

    /// Number of entries that can be fetched. Reads the available index only if fewer than `wanted`
    /// entries are known, because the cache line of the index is nearly always with the driver.
    #[inline]
    fn available(&mut self, wanted: usize) -> Result<u16, RingFault> {
        let known = self.seen_avail.wrapping_sub(self.next_avail);
        if usize::from(known) >= wanted {
            return Ok(known);
        }
        // Acquire: the entries and descriptors were written before the index.
        let index = self.areas.avail.load_u16(split::INDEX, Ordering::Acquire);
        let outstanding = index.wrapping_sub(self.next_used);
        // Not more than fit, and not fewer than have been fetched already.
        if outstanding > self.areas.size || outstanding < self.seen_avail.wrapping_sub(self.next_used) {
            return Err(RingFault::AvailIndexJumped {
                from: self.seen_avail,
                to: index,
                size: self.areas.size,
            });
        }
        self.seen_avail = index;
        Ok(index.wrapping_sub(self.next_avail))
    }

    /// The unchecked head in an entry of the available ring.
    #[inline(always)]
    pub(super) fn avail_head(&self, position: u16) -> u16 {
        self.areas.avail.load_u16(split::avail_at(position, self.areas.size), Ordering::Relaxed)
    }

    /// Fetches singles ([`Chains::push_singles`]) until a chain of another kind comes.
    /// Returns how many.
    #[inline(always)]
    fn fetch_singles(
        &self,
        chains: &mut Chains,
        parts: usize,
        out: &mut [Chain],
        head: impl Fn(u16) -> u16,
    ) -> usize {
        chains.push_singles(parts, out, |number| {
            let head = head(number);
            self.descriptor(head).map(|descriptor| (head, descriptor))
        })
    }

    /// Reads a descriptor of the table; `None` when the index is outside.
    #[inline]
    fn descriptor(&self, index: u16) -> Option<Descriptor> {
        self.areas.desc.load_u64_pair(desc_at(index)).map(split::decode)
    }

    /// Fetches a chain of any kind. Its descriptors are read anew and nothing from an earlier look
    /// at them is used, since the driver may have changed them.
    #[cold]
    fn fetch_any(&self, chains: &mut Chains, head: u16, out: &mut Chain) -> Result<(), RingFault> {
        let outside = RingFault::HeadOutOfRange { head, size: self.areas.size };
        let descriptor = self.descriptor(head).ok_or(outside)?;
        if descriptor.has(DESC_NEXT | DESC_INDIRECT) {
            self.walk(chains, head, descriptor, out)
        } else {
            chains.push_single(head, descriptor.part(), out)
        }
    }

    /// Adds a chain of several descriptors.
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

    /// Walks a chain of several descriptors, the last of which may be an indirect table. Returns
    /// its length.
    fn walk_on(
        &self,
        chains: &mut Chains,
        first: usize,
        head: u16,
        mut descriptor: Descriptor,
    ) -> Result<u64, RingFault> {
        let mut table: Option<u64> = None;
        let mut size = self.areas.size;
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
                descriptor.id_or_next
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
                Some(table) => split::decode(chains.table_entry(table, next)?),
            };
        }
    }

    /// Prefetches, after a burst of `count` chains, the used entries that they will get, from
    /// `used` on, and the descriptors of the next burst. Descriptors that the driver has not
    /// written yet are left in the driver's cache.
    #[inline]
    fn prefetch(&self, used: u16, count: usize) {
        for position in (0..count as u16).step_by(LINE / 8) {
            let entry = split::used_at(used.wrapping_add(position), self.areas.size);
            self.areas.used.prefetch_for_write(entry);
        }
        let left = self.seen_avail.wrapping_sub(self.next_avail).min(count as u16);
        for position in (0..left).step_by(LINE / DESC_LEN) {
            let entry = split::avail_at(self.next_avail.wrapping_add(position), self.areas.size);
            self.areas.desc.prefetch(desc_at(self.areas.avail.load_u16(entry, Ordering::Relaxed)));
        }
    }

    /// Returns chains, each with the number of bytes written.
    #[inline]
    pub(super) fn push_used(&mut self, used: impl ExactSizeIterator<Item = (Chain, u32)>) {
        let count = used.len();
        let mut entries = used.map(|(chain, written)| [u32::from(chain.id), written]);
        let before_end = usize::from(self.areas.size - (self.next_used & (self.areas.size - 1))).min(count);
        self.areas.used.store_u32_pairs(
            split::used_at(self.next_used, self.areas.size),
            before_end,
            &mut entries,
        );
        self.areas.used.store_u32_pairs(split::ENTRIES, count - before_end, &mut entries);
        self.next_used = self.next_used.wrapping_add(count as u16);
    }

    /// Returns a batch of `chains` chains by one used entry, which names the last chain and is
    /// placed where the entry of the first chain would be (2.7.9).
    #[inline]
    pub(super) fn push_batch(&mut self, last: Chain, chains: u16) {
        let entry = split::used_at(self.next_used, self.areas.size);
        self.areas.used.store_u32(entry, u32::from(last.id));
        self.areas.used.store_u32(entry + 4, 0);
        self.next_used = self.next_used.wrapping_add(chains);
    }

    #[inline]
    pub(super) fn publish(&mut self) {
        self.published.publish(&self.areas.used, self.next_used);
    }

    #[inline]
    pub(super) fn needs_interrupt(&mut self) -> bool {
        self.published.needs_notification(&self.areas.avail, self.areas.used_event())
    }

    pub(super) fn suspend_kicks(&mut self) {
        split::suspend_notifications(&self.areas.used, self.areas.avail_event());
    }

    pub(super) fn arm_kicks(&mut self) -> bool {
        let Areas { avail, used, .. } = &self.areas;
        split::arm_notifications(used, self.areas.avail_event(), avail, self.seen_avail)
    }
}

/// For socket queues, which fetch one chain at a time and return chains in any order.
impl SplitRing {
    /// Position of the next entry to fetch. Differs from [`Self::position`] while chains are in
    /// flight.
    pub(super) fn available_position(&self) -> u16 {
        self.next_avail
    }

    /// The used index in guest memory.
    pub(super) fn used_index(&self) -> u16 {
        self.areas.used.load_u16(split::INDEX, Ordering::Acquire)
    }

    /// The unchecked available index in guest memory.
    pub(super) fn avail_index(&self) -> u16 {
        self.areas.avail.load_u16(split::INDEX, Ordering::Acquire)
    }

    /// The unchecked head in an entry of the used ring.
    pub(super) fn used_head(&self, position: u16) -> u16 {
        self.areas.used.load_u32(split::used_at(position, self.areas.size)) as u16
    }

    /// Writes a head into an entry of the used ring that the driver does not see, and may never
    /// see.
    pub(super) fn write_used_head(&self, position: u16, head: u16) {
        self.areas.used.store_u32(split::used_at(position, self.areas.size), head.into());
    }

    /// Resumes from this used index with `in_flight` chains that a predecessor fetched. The chains
    /// of such a ring are returned in any order.
    pub(super) fn resume(&mut self, used: u16, in_flight: u16) {
        (self.next_used, self.published) = (used, Published::up_to(used));
        let next = used.wrapping_add(in_flight);
        (self.next_avail, self.seen_avail) = (next, next);
    }

    /// The unchecked head in the next available entry; `None` when there is none.
    #[inline]
    pub(super) fn next_head(&mut self) -> Result<Option<u16>, RingFault> {
        Ok((self.available(1)? > 0).then(|| self.avail_head(self.next_avail)))
    }

    /// Moves past the entry that [`Self::next_head`] found.
    #[inline]
    pub(super) fn pass_available(&mut self) {
        self.next_avail = self.next_avail.wrapping_add(1);
        self.prefetch(self.next_used, 1);
    }

    /// Checks the chain from `head`, anew at each call.
    #[inline]
    pub(super) fn fetch_from(
        &self,
        chains: &mut Chains,
        head: u16,
        out: &mut Chain,
    ) -> Result<(), RingFault> {
        let one = std::slice::from_mut(out);
        if self.fetch_singles(chains, usize::MAX, one, |_| head) == 1 {
            Ok(())
        } else {
            self.fetch_any(chains, head, out)
        }
    }
}
