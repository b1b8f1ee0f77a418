//! The driver end of one packed ring.

use crate::ring::packed::{self, Areas, Position};
use crate::ring::{DESC_INDIRECT, DESC_NEXT, DESC_WRITE, Descriptor, Part, desc_at};

#[derive(Debug)]
pub(super) struct PackedRing {
    areas: Areas,
    /// Next descriptor to make available.
    next_avail: Position,
    /// Index and second word of the first descriptor that is not published. The word is written
    /// last; the device cannot get past it.
    held: Option<(u16, u64)>,
    /// Position behind the last descriptor that the device sees.
    published: Position,
    /// Descriptors written since the last publication.
    added: u16,
    /// Descriptors published since the device was last kicked, or found not to want a kick; at most
    /// the size of the ring.
    unkicked: u16,
    /// Position of the next used descriptor.
    next_used: Position,
}

impl PackedRing {
    pub(super) fn new(areas: Areas) -> Self {
        Self {
            areas,
            next_avail: Position::START,
            held: None,
            published: Position::START,
            added: 0,
            unkicked: 0,
            next_used: Position::START,
        }
    }

    /// Writes a chain whose slots are taken.
    #[inline]
    pub(super) fn add(&mut self, id: u16, parts: impl ExactSizeIterator<Item = Part>) {
        let count = parts.len();
        for (position, part) in parts.enumerate() {
            let more = if position + 1 < count { DESC_NEXT } else { 0 };
            let Part { addr, len, .. } = part;
            self.push(Descriptor { addr, len, flags: part.flags() | more, id_or_next: id });
        }
    }

    /// Writes a chain that is an indirect table.
    pub(super) fn add_table(&mut self, id: u16, addr: u64, len: u32) {
        self.push(Descriptor { addr, len, flags: DESC_INDIRECT, id_or_next: id });
    }

    /// The words of an indirect table.
    pub(super) fn table(parts: &[Part]) -> Vec<u64> {
        let entry = |part: &Part| {
            let Part { addr, len, .. } = *part;
            packed::encode(Descriptor { addr, len, flags: part.flags(), id_or_next: 0 })
        };
        parts.iter().flat_map(entry).collect()
    }

    #[inline]
    fn push(&mut self, descriptor: Descriptor) {
        let at = self.next_avail;
        let flags = descriptor.flags | at.available_flags();
        let [addr, state] = packed::encode(Descriptor { flags, ..descriptor });
        self.areas.desc.store_u64(desc_at(at.index), addr);
        if self.held.is_none() {
            self.held = Some((at.index, state));
        } else {
            self.areas.desc.store_u64(packed::state_at(at.index), state);
        }
        self.added += 1;
        self.next_avail = at.advance(1, self.areas.size);
    }

    #[inline]
    pub(super) fn publish(&mut self) {
        if let Some((index, state)) = self.held.take() {
            // Release: the other descriptors and the payload before the flags that lead to them.
            self.areas.desc.store_u64_release(packed::state_at(index), state);
            self.unkicked = self.areas.size.min(self.unkicked.saturating_add(self.added));
            self.added = 0;
            self.published = self.next_avail;
        }
    }

    #[inline]
    pub(super) fn needs_kick(&mut self) -> bool {
        let Areas { device_event, size, .. } = &self.areas;
        packed::needs_notification(device_event, &mut self.unkicked, self.published, *size)
    }

    /// ID of the next used descriptor, and number of bytes written.
    #[inline]
    pub(super) fn used_entry(&self) -> Option<(u32, u32)> {
        let at = self.next_used;
        let Descriptor { len, id_or_next: id, flags, .. } = self.areas.load(at);
        let written = if flags & DESC_WRITE != 0 { len } else { 0 };
        at.is_used(flags).then_some((id.into(), written))
    }

    /// Moves past the `count` descriptors of a chain that was taken back.
    #[inline]
    pub(super) fn pass_used(&mut self, count: u16) {
        self.next_used = self.next_used.advance(count, self.areas.size);
    }

    pub(super) fn suspend_interrupts(&mut self) {
        packed::suspend_notifications(&self.areas.driver_event);
    }

    pub(super) fn arm_interrupts(&mut self) -> bool {
        let at = self.next_used;
        self.areas.arm_notifications(&self.areas.driver_event, at, |flags| at.is_used(flags))
    }
}
