//! Bursts on a packed ring (2.8).

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use super::super::{QueueLayout, UsedFault};
use super::{BufferPool, BurstFault, Frame, MAX_BURST};
use crate::fault::QueueError;
use crate::features::IN_ORDER;
use crate::memory::{Area, GuestMemory};
use crate::packed::{self, Descriptor, Event, Position};
use crate::split::{self, DESC_WRITE};

#[derive(Debug)]
pub(super) struct Ring {
    size: u16,
    in_order: bool,
    desc: Area<16>,
    device_event: Area<4>,
    next_avail: Position,
    next_used: Position,
    in_flight: u16,
}

impl Ring {
    pub(super) fn new(
        memory: &Arc<GuestMemory>,
        layout: QueueLayout,
        features: u64,
    ) -> Result<Self, QueueError> {
        let size = layout.size;
        if size == 0 || size > packed::MAX_SIZE {
            return Err(QueueError::Size(size));
        }
        // The split layout's areas are at least as long, and as strictly aligned.
        let driver_event: Area<4> =
            split::area(memory, "driver event area", layout.avail, packed::EVENT_LEN)?;
        driver_event.store_u32(0, Event::Disable.to_word());
        Ok(Self {
            size,
            in_order: features & IN_ORDER != 0,
            desc: split::area(memory, "descriptor ring", layout.desc, packed::desc_at(size))?,
            device_event: split::area(memory, "device event area", layout.used, packed::EVENT_LEN)?,
            next_avail: Position::START,
            next_used: Position::START,
            in_flight: 0,
        })
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.into()
    }

    /// Length, id and flags of a descriptor.
    #[inline]
    fn read(&self, at: u16) -> (u32, u16, u16) {
        let word = self.desc.load_u64(packed::state_at(at));
        (word as u32, (word >> 32) as u16, (word >> 48) as u16)
    }

    #[inline]
    fn store(&self, at: u16, word: u64) {
        self.desc.store_u64(packed::state_at(at), word);
    }

    /// The second word of a descriptor.
    #[inline]
    fn word(len: u32, id: u16, flags: u16) -> u64 {
        Descriptor { addr: 0, len, id, flags }.to_words()[1]
    }

    #[inline]
    fn reclaim(&mut self) -> Result<(), BurstFault> {
        while self.in_flight > 0 {
            let (_, id, flags) = self.read(self.next_used.index);
            if !self.next_used.is_used(flags) {
                return Ok(());
            }
            // Ids are places. A device that uses in order may name only the last of a burst.
            let expected = self.next_used.index;
            let ahead = if id >= expected { id - expected } else { id + (self.size - expected) };
            if id >= self.size || ahead >= self.in_flight || (ahead > 0 && !self.in_order) {
                return Err(BurstFault::OutOfOrder { found: id, expected });
            }
            self.next_used = self.next_used.advance(ahead + 1, self.size);
            self.in_flight -= ahead + 1;
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
        if usize::from(self.size - self.in_flight) < count {
            self.reclaim()?;
        }
        let count = count.min(usize::from(self.size - self.in_flight));
        let first = self.next_avail;
        let mut first_word = 0;
        for index in 0..count {
            let at = self.next_avail.index;
            let buffer = pool.take();
            touch(pool.frame(buffer));
            let word = Self::word(len, at, self.next_avail.available_flags());
            self.desc.store_u64(packed::desc_at(at), pool.addr(buffer));
            if index == 0 {
                first_word = word;
            } else {
                self.store(at, word);
            }
            self.next_avail = self.next_avail.advance(1, self.size);
        }
        self.show(first, first_word, count);
        self.in_flight += count as u16;
        Ok(count)
    }

    /// Makes a burst available by the flags of its first descriptor, written last.
    #[inline]
    fn show(&self, first: Position, word: u64, count: usize) {
        if count > 0 {
            fence(Ordering::Release);
            self.store(first.index, word);
        }
    }

    pub(super) fn fill(&mut self, pool: &mut BufferPool) {
        pool.divide(self.size);
        let first = self.next_avail;
        let mut first_word = 0;
        for id in 0..self.size {
            let word = Self::word(pool.room(), id, DESC_WRITE | self.next_avail.available_flags());
            self.desc.store_u64(packed::desc_at(id), pool.addr(pool.held(id)));
            if id == 0 {
                first_word = word;
            } else {
                self.store(id, word);
            }
            self.next_avail = self.next_avail.advance(1, self.size);
        }
        self.show(first, first_word, self.size.into());
        self.in_flight = self.size;
    }

    #[inline]
    pub(super) fn receive(
        &mut self,
        pool: &mut BufferPool,
        most: usize,
        look: bool,
        mut see: impl FnMut(Frame<'_>, u32),
    ) -> Result<usize, BurstFault> {
        let mut entries = [(0, 0); MAX_BURST];
        let mut count = 0;
        while count < most.min(MAX_BURST) {
            let (len, id, flags) = self.read(self.next_used.index);
            if !self.next_used.is_used(flags) {
                break;
            }
            if id >= self.size {
                return Err(UsedFault::Unknown { id: id.into() }.into());
            }
            pool.frame(pool.held(id)).prefetch(look);
            entries[count] = (id, len);
            count += 1;
            self.next_used = self.next_used.advance(1, self.size);
        }
        // Payload after the flags that announce it.
        fence(Ordering::Acquire);
        let first = self.next_avail;
        let mut first_word = 0;
        for (index, &(id, len)) in entries[..count].iter().enumerate() {
            see(pool.frame(pool.held(id)), len);
            let buffer = pool.exchange(id);
            let at = self.next_avail.index;
            let word = Self::word(pool.room(), id, DESC_WRITE | self.next_avail.available_flags());
            self.desc.store_u64(packed::desc_at(at), pool.addr(buffer));
            if index == 0 {
                first_word = word;
            } else {
                self.store(at, word);
            }
            self.next_avail = self.next_avail.advance(1, self.size);
        }
        self.show(first, first_word, count);
        Ok(count)
    }

    #[inline]
    pub(super) fn needs_kick(&self) -> bool {
        // The flags must be visible before the device's wish is read.
        fence(Ordering::SeqCst);
        Event::from_word(self.device_event.load_u32(0)) != Event::Disable
    }
}
