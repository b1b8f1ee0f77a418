//! The driver end of one split ring.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use super::slots::Slots;
use super::{Part, QueueLayout};
use crate::fault::QueueError;
use crate::features;
use crate::memory::{Area, GuestMemory};
use crate::split::{self, DESC_INDIRECT, DESC_NEXT, DESC_WRITE, Descriptor};

#[derive(Debug)]
pub(super) struct SplitRing {
    size: u16,
    event_idx: bool,
    desc: Area<16>,
    avail: Area<2>,
    used: Area<4>,
    /// Next available entry to write.
    next_avail: u16,
    /// Available index as the device sees it.
    published: u16,
    /// Available index when the device was last kicked, or found not to want it.
    kicked: u16,
    /// Next used entry to read.
    next_used: u16,
}

impl SplitRing {
    pub(super) fn new(
        memory: &Arc<GuestMemory>,
        layout: QueueLayout,
        features: u64,
    ) -> Result<Self, QueueError> {
        let size = layout.size;
        if !size.is_power_of_two() || size > split::MAX_SIZE {
            return Err(QueueError::Size(size));
        }
        let [desc_len, avail_len, used_len] = split::area_lengths(size, true);
        Ok(Self {
            size,
            event_idx: features & features::EVENT_IDX != 0,
            desc: split::area(memory, "descriptor table", layout.desc, desc_len)?,
            avail: split::area(memory, "available ring", layout.avail, avail_len)?,
            used: split::area(memory, "used ring", layout.used, used_len)?,
            next_avail: 0,
            published: 0,
            kicked: 0,
            next_used: 0,
        })
    }

    /// Writes a chain whose slots are taken: its descriptors.
    #[inline]
    pub(super) fn add(&mut self, slots: &Slots, head: u16, parts: impl ExactSizeIterator<Item = Part>) {
        let count = parts.len();
        let mut index = head;
        for (position, part) in parts.enumerate() {
            let next = (position + 1 < count).then(|| slots.behind(index));
            self.write_descriptor(index, descriptor(part, next));
            index = next.unwrap_or(head);
        }
        self.make_available(head);
    }

    /// Writes a chain that is an indirect table.
    pub(super) fn add_table(&mut self, head: u16, addr: u64, len: u32) {
        self.write_descriptor(head, Descriptor { addr, len, flags: DESC_INDIRECT, next: 0 });
        self.make_available(head);
    }

    /// The content of an indirect table.
    pub(super) fn table(parts: &[Part]) -> Vec<u64> {
        let last = parts.len().saturating_sub(1);
        let entry = |(index, part): (usize, &Part)| {
            descriptor(*part, (index < last).then_some(index as u16 + 1)).to_words()
        };
        parts.iter().enumerate().flat_map(entry).collect()
    }

    #[inline]
    fn write_descriptor(&mut self, index: u16, descriptor: Descriptor) {
        let at = split::desc_at(index);
        let [low, high] = descriptor.to_words();
        self.desc.store_u64(at, low);
        self.desc.store_u64(at + 8, high);
    }

    #[inline]
    fn make_available(&mut self, head: u16) {
        self.avail.store_u16(split::avail_at(self.next_avail, self.size), head, Ordering::Relaxed);
        self.next_avail = self.next_avail.wrapping_add(1);
    }

    #[inline]
    pub(super) fn publish(&mut self) {
        if self.published != self.next_avail {
            // Release: descriptors, entries and payload before the index.
            self.avail.store_u16(split::INDEX, self.next_avail, Ordering::Release);
            self.published = self.next_avail;
        }
    }

    #[inline]
    pub(super) fn needs_kick(&mut self) -> bool {
        if self.published == self.kicked {
            return false;
        }
        // The index must be visible before the device's wish is read.
        fence(Ordering::SeqCst);
        let old = std::mem::replace(&mut self.kicked, self.published);
        if self.event_idx {
            let event = self.used.load_u16(split::avail_event_at(self.size), Ordering::Relaxed);
            split::passed_event(event, self.published, old)
        } else {
            self.used.load_u16(split::FLAGS, Ordering::Relaxed) & split::USED_NO_NOTIFY == 0
        }
    }

    /// Id and bytes written of the next used entry.
    #[inline]
    pub(super) fn used_entry(&self) -> Option<(u32, u32)> {
        // Acquire: entries and payload were written before the index.
        if self.used.load_u16(split::INDEX, Ordering::Acquire) == self.next_used {
            return None;
        }
        let entry = split::used_at(self.next_used, self.size);
        Some((self.used.load_u32(entry), self.used.load_u32(entry + 4)))
    }

    /// A chain was taken back.
    #[inline]
    pub(super) fn pass_used(&mut self) {
        self.next_used = self.next_used.wrapping_add(1);
    }

    pub(super) fn suspend_interrupts(&mut self) {
        // With EVENT_IDX the threshold stays behind: the device has passed it.
        if !self.event_idx {
            self.avail.store_u16(split::FLAGS, split::AVAIL_NO_INTERRUPT, Ordering::Relaxed);
        }
    }

    pub(super) fn arm_interrupts(&mut self) -> bool {
        if self.event_idx {
            let event = split::used_event_at(self.size);
            self.avail.store_u16(event, self.next_used, Ordering::Relaxed);
        } else {
            self.avail.store_u16(split::FLAGS, 0, Ordering::Relaxed);
        }
        // The wish must be visible before the index is read again, or a chain that comes now is missed by both.
        fence(Ordering::SeqCst);
        self.used.load_u16(split::INDEX, Ordering::Relaxed) != self.next_used
    }
}

fn descriptor(part: Part, next: Option<u16>) -> Descriptor {
    let write = if part.writable { DESC_WRITE } else { 0 };
    let more = if next.is_some() { DESC_NEXT } else { 0 };
    Descriptor { addr: part.addr, len: part.len, flags: write | more, next: next.unwrap_or(0) }
}
