//! Bursts on a packed ring (2.8).

use std::sync::atomic::{Ordering, fence};

use super::super::UsedFault;
use super::{BurstFault, Entry, Format};
use crate::features::IN_ORDER;
use crate::ring::packed::{self, Areas, Event, Position};
use crate::ring::{Descriptor, Part, desc_at};

#[derive(Debug)]
pub(super) struct Ring {
    areas: Areas,
    in_order: bool,
    next_avail: Position,
    next_used: Position,
    in_flight: u16,
}

/// Descriptors that are written but not visible, because the second word of the first one is
/// missing.
#[derive(Debug)]
pub(super) struct Batch {
    /// Position behind the last descriptor.
    next: Position,
    count: u16,
    /// Second word of the first descriptor.
    word: u64,
}

impl Ring {
    pub(super) fn new(areas: Areas, features: u64) -> Self {
        packed::suspend_notifications(&areas.driver_event);
        let (in_order, start) = (features & IN_ORDER != 0, Position::START);
        Self { areas, in_order, next_avail: start, next_used: start, in_flight: 0 }
    }

    /// Reads length, ID and flags of a descriptor.
    #[inline]
    fn read(&self, at: Position) -> Descriptor {
        packed::decode([0, self.areas.desc.load_u64(packed::state_at(at.index))])
    }
}

impl Format for Ring {
    type Batch = Batch;

    #[inline]
    fn in_flight(&self) -> u16 {
        self.in_flight
    }

    #[inline]
    fn begin(&self) -> Batch {
        Batch { next: self.next_avail, count: 0, word: 0 }
    }

    #[inline]
    fn next_slot(&self, batch: &Batch) -> u16 {
        batch.next.index
    }

    #[inline]
    fn add(&mut self, batch: &mut Batch, slot: u16, buffer: Part) {
        let at = batch.next;
        let Part { addr, len, .. } = buffer;
        let flags = buffer.flags() | at.available_flags();
        let [addr, word] = packed::encode(Descriptor { addr, len, flags, id_or_next: slot });
        self.areas.desc.store_u64(desc_at(at.index), addr);
        if batch.count == 0 {
            batch.word = word;
        } else {
            self.areas.desc.store_u64(packed::state_at(at.index), word);
        }
        batch.count += 1;
        batch.next = at.advance(1, self.areas.size);
    }

    #[inline]
    fn publish(&mut self, batch: Batch) {
        if batch.count > 0 {
            fence(Ordering::Release);
            self.areas.desc.store_u64(packed::state_at(self.next_avail.index), batch.word);
            self.next_avail = batch.next;
            self.in_flight += batch.count;
        }
    }

    #[inline]
    fn reclaim(&mut self) -> Result<(), BurstFault> {
        let size = self.areas.size;
        while self.in_flight > 0 {
            let Descriptor { id_or_next: id, flags, .. } = self.read(self.next_used);
            if !self.next_used.is_used(flags) {
                return Ok(());
            }
            // Each ID is the index of its descriptor. A device that uses buffers in order may name
            // only the last one of a burst.
            let expected = self.next_used.index;
            let ahead = if id >= expected { id - expected } else { id + (size - expected) };
            if id >= size || ahead >= self.in_flight || (ahead > 0 && !self.in_order) {
                return Err(BurstFault::OutOfOrder { found: id, expected });
            }
            self.next_used = self.next_used.advance(ahead + 1, size);
            self.in_flight -= ahead + 1;
        }
        Ok(())
    }

    #[inline]
    fn take_used(&mut self, entries: &mut [Entry], mut found: impl FnMut(u16)) -> Result<usize, BurstFault> {
        let mut at = self.next_used;
        let mut count = 0;
        while count < entries.len() {
            let Descriptor { len, id_or_next: id, flags, .. } = self.read(at);
            if !at.is_used(flags) {
                break;
            }
            if id >= self.areas.size {
                return Err(UsedFault::Unknown { id: id.into() }.into());
            }
            found(id);
            entries[count] = (id, len);
            count += 1;
            at = at.advance(1, self.areas.size);
        }
        self.next_used = at;
        // The payload is read after the flags that announce it.
        fence(Ordering::Acquire);
        self.in_flight = self.in_flight.wrapping_sub(count as u16);
        Ok(count)
    }

    #[inline]
    fn needs_kick(&self) -> bool {
        // The flags must be visible before the device's wish is read.
        fence(Ordering::SeqCst);
        Event::from_word(self.areas.device_event.load_u32(0)) != Event::Disable
    }
}
