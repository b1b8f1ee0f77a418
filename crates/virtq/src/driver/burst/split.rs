//! Bursts on a split ring (2.7).

use std::sync::atomic::{Ordering, fence};

use super::super::UsedFault;
use super::{BurstFault, Entry, Format};
use crate::ring::split::{self, Areas};
use crate::ring::{Descriptor, Part};

#[derive(Debug)]
pub(super) struct Ring {
    areas: Areas,
    next_avail: u16,
    next_used: u16,
}

impl Ring {
    pub(super) fn new(areas: Areas) -> Self {
        areas.avail.store_u16(split::FLAGS, split::NO_NOTIFICATION, Ordering::Relaxed);
        Self { areas, next_avail: 0, next_used: 0 }
    }
}

impl Format for Ring {
    /// Position behind the last entry of the batch.
    type Batch = u16;

    #[inline]
    fn in_flight(&self) -> u16 {
        self.next_avail.wrapping_sub(self.next_used)
    }

    #[inline]
    fn begin(&self) -> u16 {
        self.next_avail
    }

    #[inline]
    fn next_slot(&self, position: &u16) -> u16 {
        position & (self.areas.size - 1)
    }

    #[inline]
    fn add(&mut self, position: &mut u16, slot: u16, buffer: Part) {
        let Part { addr, len, .. } = buffer;
        self.areas.write_descriptor(slot, Descriptor { addr, len, flags: buffer.flags(), id_or_next: 0 });
        let at = split::avail_at(*position, self.areas.size);
        // The device holds the cache line of the entry. An entry that stays the same is not
        // written.
        if self.areas.avail.load_u16(at, Ordering::Relaxed) != slot {
            self.areas.avail.store_u16(at, slot, Ordering::Relaxed);
        }
        *position = position.wrapping_add(1);
    }

    #[inline]
    fn publish(&mut self, next: u16) {
        if next != self.next_avail {
            self.next_avail = next;
            // Release: descriptors, entries and payload before the index.
            self.areas.avail.store_u16(split::INDEX, next, Ordering::Release);
        }
    }

    #[inline]
    fn reclaim(&mut self) -> Result<(), BurstFault> {
        let Areas { size, used, .. } = &self.areas;
        let index = used.load_u16(split::INDEX, Ordering::Acquire);
        let (returned, had) = (index.wrapping_sub(self.next_used), self.in_flight());
        if returned > had {
            return Err(BurstFault::TooMany { returned, had });
        }
        if returned > 0 {
            // The first entry names itself or, from a device that returns a burst by one entry, the
            // last one of the burst. Only this entry is checked: reading all of them would cost one
            // cache line for every eight entries.
            let expected = self.next_used & (size - 1);
            let found = used.load_u32(split::used_at(self.next_used, *size)) as u16;
            if found >= *size || found.wrapping_sub(expected) & (size - 1) >= returned {
                return Err(BurstFault::OutOfOrder { found, expected });
            }
            self.next_used = index;
        }
        Ok(())
    }

    #[inline]
    fn take_used(&mut self, entries: &mut [Entry], mut found: impl FnMut(u16)) -> Result<usize, BurstFault> {
        let (size, used, first) = (self.areas.size, &self.areas.used, self.next_used);
        // Acquire: entries and payload were written before the index.
        let returned = used.load_u16(split::INDEX, Ordering::Acquire).wrapping_sub(first);
        if returned > size {
            return Err(BurstFault::TooMany { returned, had: size });
        }
        let count = usize::from(returned).min(entries.len());
        for (position, entry) in entries[..count].iter_mut().enumerate() {
            let at = split::used_at(first.wrapping_add(position as u16), size);
            let id = used.load_u32(at);
            if id >= u32::from(size) {
                return Err(UsedFault::Unknown { id }.into());
            }
            *entry = (id as u16, used.load_u32(at + 4));
            found(id as u16);
        }
        self.next_used = first.wrapping_add(count as u16);
        Ok(count)
    }

    #[inline]
    fn needs_kick(&self) -> bool {
        // The index must be visible before the device's wish is read.
        fence(Ordering::SeqCst);
        split::wants_notifications(&self.areas.used)
    }
}
