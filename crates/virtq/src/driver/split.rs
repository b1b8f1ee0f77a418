//! The driver end of one split ring.

use std::sync::atomic::Ordering;

use super::slots::Slots;
use crate::ring::split::{self, Areas, Published};
use crate::ring::{DESC_INDIRECT, DESC_NEXT, Descriptor, Part};

#[derive(Debug)]
pub(super) struct SplitRing {
    areas: Areas,
    /// Next available entry to write.
    next_avail: u16,
    published: Published,
    /// Next used entry to read.
    next_used: u16,
}

impl SplitRing {
    pub(super) fn new(areas: Areas) -> Self {
        Self { areas, next_avail: 0, published: Published::up_to(0), next_used: 0 }
    }

    /// Writes the descriptors of a chain whose slots are taken.
    #[inline]
    pub(super) fn add(&mut self, slots: &Slots, head: u16, parts: impl ExactSizeIterator<Item = Part>) {
        let count = parts.len();
        let mut index = head;
        for (position, part) in parts.enumerate() {
            let next = (position + 1 < count).then(|| slots.behind(index));
            self.areas.write_descriptor(index, descriptor(part, next));
            index = next.unwrap_or(head);
        }
        self.make_available(head);
    }

    /// Writes a chain that is an indirect table.
    pub(super) fn add_table(&mut self, head: u16, addr: u64, len: u32) {
        self.areas.write_descriptor(head, Descriptor { addr, len, flags: DESC_INDIRECT, id_or_next: 0 });
        self.make_available(head);
    }

    /// The words of an indirect table.
    pub(super) fn table(parts: &[Part]) -> Vec<u64> {
        let last = parts.len().saturating_sub(1);
        let entry = |(index, part): (usize, &Part)| {
            split::encode(descriptor(*part, (index < last).then_some(index as u16 + 1)))
        };
        parts.iter().enumerate().flat_map(entry).collect()
    }

    #[inline]
    fn make_available(&mut self, head: u16) {
        let entry = split::avail_at(self.next_avail, self.areas.size);
        self.areas.avail.store_u16(entry, head, Ordering::Relaxed);
        self.next_avail = self.next_avail.wrapping_add(1);
    }

    #[inline]
    pub(super) fn publish(&mut self) {
        self.published.publish(&self.areas.avail, self.next_avail);
    }

    #[inline]
    pub(super) fn needs_kick(&mut self) -> bool {
        self.published.needs_notification(&self.areas.used, self.areas.avail_event())
    }

    /// ID of the next used entry, and number of bytes written.
    #[inline]
    pub(super) fn used_entry(&self) -> Option<(u32, u32)> {
        let Areas { used, size, .. } = &self.areas;
        // Acquire: entries and payload were written before the index.
        if used.load_u16(split::INDEX, Ordering::Acquire) == self.next_used {
            return None;
        }
        let entry = split::used_at(self.next_used, *size);
        Some((used.load_u32(entry), used.load_u32(entry + 4)))
    }

    /// Moves past the entry of a chain that was taken back.
    #[inline]
    pub(super) fn pass_used(&mut self) {
        self.next_used = self.next_used.wrapping_add(1);
    }

    pub(super) fn suspend_interrupts(&mut self) {
        split::suspend_notifications(&self.areas.avail, self.areas.used_event());
    }

    pub(super) fn arm_interrupts(&mut self) -> bool {
        let Areas { avail, used, .. } = &self.areas;
        split::arm_notifications(avail, self.areas.used_event(), used, self.next_used)
    }
}

fn descriptor(part: Part, next: Option<u16>) -> Descriptor {
    let more = if next.is_some() { DESC_NEXT } else { 0 };
    let Part { addr, len, .. } = part;
    Descriptor { addr, len, flags: part.flags() | more, id_or_next: next.unwrap_or(0) }
}
