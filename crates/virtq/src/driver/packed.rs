//! The driver end of one packed ring.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use super::{Part, QueueLayout};
use crate::fault::QueueError;
use crate::features;
use crate::memory::{Area, GuestMemory};
use crate::packed::{self, Descriptor, Event, Position};
use crate::split::{self, DESC_INDIRECT, DESC_NEXT, DESC_WRITE};

#[derive(Debug)]
pub(super) struct PackedRing {
    size: u16,
    event_idx: bool,
    desc: Area<16>,
    /// What this end wants to be told.
    driver_event: Area<4>,
    /// What the device wants to be told.
    device_event: Area<4>,
    /// Next descriptor to make available.
    next_avail: Position,
    /// First descriptor that is not published: where it is, and its flags' word, which is written last. The device cannot
    /// get past it.
    held: Option<(u16, u64)>,
    /// Behind the last descriptor that the device sees.
    published: Position,
    /// Descriptors written since the last publication.
    added: u16,
    /// Descriptors published since the device was last kicked, or found not to want it; at most `size`.
    unkicked: u16,
    /// Where the next used descriptor will be.
    next_used: Position,
}

impl PackedRing {
    pub(super) fn new(
        memory: &Arc<GuestMemory>,
        layout: QueueLayout,
        features: u64,
    ) -> Result<Self, QueueError> {
        let size = layout.size;
        if size == 0 || size > packed::MAX_SIZE {
            return Err(QueueError::Size(size));
        }
        Ok(Self {
            size,
            event_idx: features & features::EVENT_IDX != 0,
            desc: split::area(memory, "descriptor ring", layout.desc, packed::desc_at(size))?,
            driver_event: split::area(memory, "driver area", layout.avail, packed::EVENT_LEN)?,
            device_event: split::area(memory, "device area", layout.used, packed::EVENT_LEN)?,
            next_avail: Position::START,
            held: None,
            published: Position::START,
            added: 0,
            unkicked: 0,
            next_used: Position::START,
        })
    }

    /// Writes a chain whose slots are taken.
    #[inline]
    pub(super) fn add(&mut self, id: u16, parts: impl ExactSizeIterator<Item = Part>) {
        let count = parts.len();
        for (position, part) in parts.enumerate() {
            let more = if position + 1 < count { DESC_NEXT } else { 0 };
            let flags = more | if part.writable { DESC_WRITE } else { 0 };
            self.push(Descriptor { addr: part.addr, len: part.len, id, flags });
        }
    }

    /// Writes a chain that is an indirect table.
    pub(super) fn add_table(&mut self, id: u16, addr: u64, len: u32) {
        self.push(Descriptor { addr, len, id, flags: DESC_INDIRECT });
    }

    /// The content of an indirect table.
    pub(super) fn table(parts: &[Part]) -> Vec<u64> {
        let entry = |part: &Part| {
            let flags = if part.writable { DESC_WRITE } else { 0 };
            Descriptor { addr: part.addr, len: part.len, id: 0, flags }.to_words()
        };
        parts.iter().flat_map(entry).collect()
    }

    #[inline]
    fn push(&mut self, descriptor: Descriptor) {
        let at = self.next_avail;
        let flags = descriptor.flags | at.available_flags();
        let [addr, state] = Descriptor { flags, ..descriptor }.to_words();
        self.desc.store_u64(packed::desc_at(at.index), addr);
        if self.held.is_none() {
            self.held = Some((at.index, state));
        } else {
            self.desc.store_u64(packed::state_at(at.index), state);
        }
        self.added += 1;
        self.next_avail = at.advance(1, self.size);
    }

    #[inline]
    pub(super) fn publish(&mut self) {
        if let Some((index, state)) = self.held.take() {
            // Release: the other descriptors and the payload before the flags that lead to them.
            self.desc.store_u64_release(packed::state_at(index), state);
            self.unkicked = self.size.min(self.unkicked.saturating_add(self.added));
            self.added = 0;
            self.published = self.next_avail;
        }
    }

    #[inline]
    pub(super) fn needs_kick(&mut self) -> bool {
        let moved = std::mem::take(&mut self.unkicked);
        if moved == 0 {
            return false;
        }
        // The flags must be visible before the device's wish is read.
        fence(Ordering::SeqCst);
        Event::from_word(self.device_event.load_u32(0)).wants(self.published, moved, self.size)
    }

    /// Id and bytes written of the next used descriptor.
    #[inline]
    pub(super) fn used_entry(&self) -> Option<(u32, u32)> {
        let at = self.next_used;
        // Acquire: the payload was written before the flags. Length and id are in the same word.
        let state = self.desc.load_u64_acquire(packed::state_at(at.index));
        let Descriptor { len, id, flags, .. } = Descriptor::from_words([0, state]);
        let written = if flags & DESC_WRITE != 0 { len } else { 0 };
        at.is_used(flags).then_some((id.into(), written))
    }

    /// A chain of `count` descriptors was taken back.
    #[inline]
    pub(super) fn pass_used(&mut self, count: u16) {
        self.next_used = self.next_used.advance(count, self.size);
    }

    pub(super) fn suspend_interrupts(&mut self) {
        self.driver_event.store_u32(0, Event::Disable.to_word());
    }

    pub(super) fn arm_interrupts(&mut self) -> bool {
        let event = if self.event_idx { Event::At(self.next_used) } else { Event::Enable };
        self.driver_event.store_u32(0, event.to_word());
        // The wish must be visible before the ring is looked at again, or a chain that comes now is missed by both.
        fence(Ordering::SeqCst);
        self.used_entry().is_some()
    }
}
