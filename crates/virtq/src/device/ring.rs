//! The device end of one split ring: fetches chains, checks them, returns them as used.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use super::{MAX_PARTS, QueueConfig, Start};
use crate::fault::{QueueError, RingFault};
use crate::features;
use crate::memory::{Area, GuestMemory, Segments};
use crate::split::{self, DESC_INDIRECT, DESC_LEN, DESC_NEXT, DESC_WRITE, Descriptor};

/// What a ring's buffers are for, seen from the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    /// The device reads; a chain has at most this many bytes.
    Transmit(u64),
    /// The device writes.
    Receive,
}

impl Direction {
    fn most(self) -> u64 {
        match self {
            Self::Transmit(most) => most,
            Self::Receive => u64::from(u32::MAX),
        }
    }
}

/// A checked chain. Its parts are `count` segments of the ring, from `first` on.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Chain {
    pub(super) first: u32,
    pub(super) count: u16,
    pub(super) head: u16,
    pub(super) len: u32,
}

/// The device end of a ring. Chains are returned in the order in which they were fetched.
#[derive(Debug)]
pub(super) struct Ring {
    size: u16,
    direction: Direction,
    indirect: bool,
    event_idx: bool,
    desc: Area<16>,
    avail: Area<2>,
    used: Area<4>,
    pub(super) segments: Segments,
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
    fault: Option<RingFault>,
}

impl Ring {
    pub(super) fn new(
        memory: &Arc<GuestMemory>,
        config: &QueueConfig,
        direction: Direction,
        segments: usize,
    ) -> Result<Self, QueueError> {
        let size = config.size;
        if !size.is_power_of_two() || size > split::MAX_SIZE {
            return Err(QueueError::Size(size));
        }
        if config.features & features::VERSION_1 == 0 {
            return Err(QueueError::Legacy);
        }
        if config.features & features::RING_PACKED != 0 {
            return Err(QueueError::Features(features::RING_PACKED));
        }
        let event_idx = config.features & features::EVENT_IDX != 0;
        let [desc_len, avail_len, used_len] = split::area_lengths(size, event_idx);
        let mut ring = Self {
            size,
            direction,
            indirect: config.features & features::INDIRECT_DESC != 0,
            event_idx,
            desc: split::area(memory, "descriptor table", config.desc, desc_len)?,
            avail: split::area(memory, "available ring", config.avail, avail_len)?,
            used: split::area(memory, "used ring", config.used, used_len)?,
            segments: Segments::new(Arc::clone(memory), segments),
            next_avail: 0,
            seen_avail: 0,
            next_used: 0,
            published: 0,
            signalled: 0,
            fault: None,
        };
        let position = match config.start {
            Start::At(position) => position,
            Start::Recover => ring.used.load_u16(split::INDEX, Ordering::Acquire),
        };
        (ring.next_avail, ring.seen_avail, ring.next_used) = (position, position, position);
        (ring.published, ring.signalled) = (position, position);
        Ok(ring)
    }

    /// Position of the first buffer that has not been returned.
    pub(super) fn position(&self) -> u16 {
        self.next_used
    }

    /// The fault that stopped this ring.
    #[inline]
    pub(super) fn check(&self) -> Result<(), RingFault> {
        self.fault.map_or(Ok(()), Err)
    }

    /// Fetched entries are not read again. How many are left to fetch, after a look at the available index.
    #[inline]
    pub(super) fn available(&mut self) -> Result<u16, RingFault> {
        self.check()?;
        // Acquire: the entries and descriptors were written before the index.
        let index = self.avail.load_u16(split::INDEX, Ordering::Acquire);
        let outstanding = index.wrapping_sub(self.next_used);
        // Neither more than fit, nor fewer than have been fetched already.
        if outstanding > self.size || outstanding < self.seen_avail.wrapping_sub(self.next_used) {
            let fault = RingFault::AvailIndexJumped { from: self.seen_avail, to: index, size: self.size };
            return Err(self.broken(fault));
        }
        self.seen_avail = index;
        Ok(index.wrapping_sub(self.next_avail))
    }

    /// Fetches the next chain; call only as often as [`Self::available`] said.
    #[inline]
    pub(super) fn fetch(&mut self) -> Result<Chain, RingFault> {
        debug_assert_ne!(self.next_avail, self.seen_avail, "nothing left to fetch");
        let entry = split::avail_at(self.next_avail, self.size);
        let head = self.avail.load_u16(entry, Ordering::Relaxed);
        let chain = self.walk(head)?;
        self.next_avail = self.next_avail.wrapping_add(1);
        Ok(chain)
    }

    /// Remembers a fault: the ring is not used any more.
    #[cold]
    pub(super) fn broken(&mut self, fault: RingFault) -> RingFault {
        self.fault = Some(fault);
        fault
    }

    #[inline]
    fn walk(&mut self, head: u16) -> Result<Chain, RingFault> {
        if head >= self.size {
            return Err(RingFault::HeadOutOfRange { head, size: self.size });
        }
        let first = self.segments.len();
        let descriptor = self.descriptor(head);
        let len = if descriptor.has(DESC_NEXT | DESC_INDIRECT) {
            self.walk_on(head, descriptor)
        } else {
            self.push(head, descriptor).map(u64::from)
        };
        match len {
            Ok(len) if len <= self.direction.most() => {
                let count = (self.segments.len() - first) as u16;
                Ok(Chain { first: first as u32, count, head, len: len as u32 })
            }
            Ok(len) => {
                self.segments.truncate(first);
                Err(RingFault::LengthOverflow { head, len, most: self.direction.most() })
            }
            Err(fault) => {
                self.segments.truncate(first);
                Err(fault)
            }
        }
    }

    #[inline]
    fn descriptor(&self, index: u16) -> Descriptor {
        let at = split::desc_at(index);
        Descriptor::from_words([self.desc.load_u64(at), self.desc.load_u64(at + 8)])
    }

    /// Checks one buffer and adds it to the segments; returns its length.
    #[inline]
    fn push(&mut self, head: u16, descriptor: Descriptor) -> Result<u32, RingFault> {
        let Descriptor { addr, len, .. } = descriptor;
        match (self.direction, descriptor.has(DESC_WRITE)) {
            (Direction::Transmit(_), true) => return Err(RingFault::WritableInTransmit { head }),
            (Direction::Receive, false) => return Err(RingFault::ReadableInReceive { head }),
            _ => {}
        }
        let long = u64::from(len);
        if len == 0 {
            return Err(RingFault::ZeroLength { head });
        }
        if addr.checked_add(long).is_none() {
            return Err(RingFault::AddressOverflow { addr, len: long });
        }
        if self.segments.push(addr, long) {
            Ok(len)
        } else {
            Err(RingFault::AddressOutside { addr, len: long })
        }
    }

    /// Walks a chain of several descriptors, the last of which may be an indirect table; returns its length.
    fn walk_on(&mut self, head: u16, mut descriptor: Descriptor) -> Result<u64, RingFault> {
        let before = self.segments.len();
        let mut table: Option<u64> = None;
        let mut size = self.size;
        let mut walked = 1;
        let mut len = 0;
        loop {
            let next = if descriptor.has(DESC_INDIRECT) {
                if table.is_some() {
                    return Err(RingFault::NestedIndirect { head });
                }
                size = self.check_table(head, descriptor)?;
                table = Some(descriptor.addr);
                walked = 0;
                0
            } else {
                len += u64::from(self.push(head, descriptor)?);
                if self.segments.len() - before > MAX_PARTS {
                    return Err(RingFault::ChainTooLong { head, most: MAX_PARTS });
                }
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
                None => self.descriptor(next),
                Some(addr) => {
                    // No overflow: the table's end was checked.
                    let addr = addr + split::desc_at(next) as u64;
                    let outside = RingFault::AddressOutside { addr, len: DESC_LEN as u64 };
                    Descriptor::from_words(self.segments.load_u64_pair(addr).ok_or(outside)?)
                }
            };
        }
    }

    /// Checks the descriptor of an indirect table; returns the table's number of entries.
    fn check_table(&self, head: u16, descriptor: Descriptor) -> Result<u16, RingFault> {
        let Descriptor { addr, len, .. } = descriptor;
        if !self.indirect {
            return Err(RingFault::IndirectNotNegotiated { head });
        }
        if descriptor.has(DESC_NEXT) {
            return Err(RingFault::IndirectWithNext { head });
        }
        if len == 0 || !(len as usize).is_multiple_of(DESC_LEN) || len as usize > MAX_PARTS * DESC_LEN {
            return Err(RingFault::IndirectTableSize { head, len });
        }
        if !addr.is_multiple_of(8) {
            return Err(RingFault::IndirectTableMisaligned { head, addr });
        }
        if addr.checked_add(u64::from(len)).is_none() {
            return Err(RingFault::AddressOverflow { addr, len: u64::from(len) });
        }
        Ok((len as usize / DESC_LEN) as u16)
    }

    /// Writes the next used entry; the driver sees it after [`Self::publish`].
    #[inline]
    pub(super) fn push_used(&mut self, head: u16, written: u32) {
        let entry = split::used_at(self.next_used, self.size);
        self.used.store_u32(entry, u32::from(head));
        self.used.store_u32(entry + 4, written);
        self.next_used = self.next_used.wrapping_add(1);
    }

    /// Shows the driver all used entries.
    #[inline]
    pub(super) fn publish(&mut self) {
        if self.published != self.next_used {
            // Release: entries and payload before the index.
            self.used.store_u16(split::INDEX, self.next_used, Ordering::Release);
            self.published = self.next_used;
        }
    }

    /// Has the driver asked to be told of what was published since the last call?
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
