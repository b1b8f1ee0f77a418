//! Bursts on a split ring (2.7).

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use super::super::{QueueLayout, UsedFault};
use super::{BufferPool, BurstFault, Frame, MAX_BURST};
use crate::fault::QueueError;
use crate::memory::{Area, GuestMemory};
use crate::split::{self, DESC_WRITE, Descriptor};

#[derive(Debug)]
pub(super) struct Ring {
    size: u16,
    desc: Area<16>,
    avail: Area<2>,
    used: Area<4>,
    next_avail: u16,
    next_used: u16,
}

impl Ring {
    pub(super) fn new(memory: &Arc<GuestMemory>, layout: QueueLayout) -> Result<Self, QueueError> {
        let size = layout.size;
        if !size.is_power_of_two() || size > split::MAX_SIZE {
            return Err(QueueError::Size(size));
        }
        let [desc_len, avail_len, used_len] = split::area_lengths(size, false);
        let avail: Area<2> = split::area(memory, "available ring", layout.avail, avail_len)?;
        avail.store_u16(split::FLAGS, split::AVAIL_NO_INTERRUPT, Ordering::Relaxed);
        Ok(Self {
            size,
            desc: split::area(memory, "descriptor table", layout.desc, desc_len)?,
            avail,
            used: split::area(memory, "used ring", layout.used, used_len)?,
            next_avail: 0,
            next_used: 0,
        })
    }

    pub(super) fn in_flight(&self) -> usize {
        self.next_avail.wrapping_sub(self.next_used).into()
    }

    #[inline]
    fn write(&self, slot: u16, addr: u64, len: u32, flags: u16) {
        let [low, high] = Descriptor { addr, len, flags, next: 0 }.to_words();
        self.desc.store_u64(split::desc_at(slot), low);
        self.desc.store_u64(split::desc_at(slot) + 8, high);
    }

    /// Makes an entry available. The device holds the line of an entry that is the same as before: it is not written.
    #[inline]
    fn offer(&self, position: u16, slot: u16) {
        let at = split::avail_at(position, self.size);
        if self.avail.load_u16(at, Ordering::Relaxed) != slot {
            self.avail.store_u16(at, slot, Ordering::Relaxed);
        }
    }

    #[inline]
    fn publish(&mut self, next: u16) {
        self.next_avail = next;
        // Release: descriptors, entries and payload before the index.
        self.avail.store_u16(split::INDEX, next, Ordering::Release);
    }

    #[inline]
    fn reclaim(&mut self) -> Result<(), BurstFault> {
        let index = self.used.load_u16(split::INDEX, Ordering::Acquire);
        let (returned, had) =
            (index.wrapping_sub(self.next_used), self.next_avail.wrapping_sub(self.next_used));
        if returned > had {
            return Err(BurstFault::TooMany { returned, had });
        }
        if returned > 0 {
            // The first entry names itself or, from a device that returns a burst by one entry, the burst's last. It stands
            // for the others: reading them all would cost a line of eight entries each.
            let expected = self.next_used & (self.size - 1);
            let found = self.used.load_u32(split::used_at(self.next_used, self.size)) as u16;
            if found >= self.size || found.wrapping_sub(expected) & (self.size - 1) >= returned {
                return Err(BurstFault::OutOfOrder { found, expected });
            }
            self.next_used = index;
        }
        Ok(())
    }

    #[inline]
    pub(super) fn send(
        &mut self,
        pool: &mut BufferPool,
        count: usize,
        len: u32,
        mut touch: impl FnMut(Frame<'_>),
    ) -> Result<usize, BurstFault> {
        let size = usize::from(self.size);
        if size - self.in_flight() < count {
            self.reclaim()?;
        }
        let count = count.min(size - self.in_flight());
        let mut position = self.next_avail;
        for _ in 0..count {
            let slot = position & (self.size - 1);
            let buffer = pool.take();
            touch(pool.frame(buffer));
            self.write(slot, pool.addr(buffer), len, 0);
            self.offer(position, slot);
            position = position.wrapping_add(1);
        }
        if count > 0 {
            self.publish(position);
        }
        Ok(count)
    }

    pub(super) fn fill(&mut self, pool: &mut BufferPool) {
        pool.divide(self.size);
        for slot in 0..self.size {
            self.write(slot, pool.addr(pool.held(slot)), pool.room(), DESC_WRITE);
            self.offer(slot, slot);
        }
        self.publish(self.size);
    }

    #[inline]
    pub(super) fn receive(
        &mut self,
        pool: &mut BufferPool,
        most: usize,
        look: bool,
        mut see: impl FnMut(Frame<'_>, u32),
    ) -> Result<usize, BurstFault> {
        // Acquire: entries and payload were written before the index.
        let index = self.used.load_u16(split::INDEX, Ordering::Acquire);
        let returned = index.wrapping_sub(self.next_used);
        if returned == 0 {
            return Ok(0);
        }
        if returned > self.size {
            return Err(BurstFault::TooMany { returned, had: self.size });
        }
        let count = usize::from(returned).min(most).min(MAX_BURST);
        let mut entries = [(0, 0); MAX_BURST];
        for (position, entry) in entries[..count].iter_mut().enumerate() {
            let at = split::used_at(self.next_used.wrapping_add(position as u16), self.size);
            let id = self.used.load_u32(at);
            if id >= u32::from(self.size) {
                return Err(UsedFault::Unknown { id }.into());
            }
            *entry = (id as u16, self.used.load_u32(at + 4));
            pool.frame(pool.held(id as u16)).prefetch(look);
        }
        let mut position = self.next_avail;
        for &(slot, len) in &entries[..count] {
            see(pool.frame(pool.held(slot)), len);
            let buffer = pool.exchange(slot);
            self.write(slot, pool.addr(buffer), pool.room(), DESC_WRITE);
            self.offer(position, slot);
            position = position.wrapping_add(1);
        }
        self.next_used = self.next_used.wrapping_add(count as u16);
        self.publish(position);
        Ok(count)
    }

    #[inline]
    pub(super) fn needs_kick(&self) -> bool {
        // The index must be visible before the device's wish is read.
        fence(Ordering::SeqCst);
        self.used.load_u16(split::FLAGS, Ordering::Relaxed) & split::USED_NO_NOTIFY == 0
    }
}
