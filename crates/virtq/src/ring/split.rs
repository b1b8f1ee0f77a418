//! Layout of split virtqueues (2.7), and what both of their ends do in the same way.
//!
//! Each end writes the index of one ring and reads that of the other ring. The driver writes the
//! available ring, the device the used ring.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use super::{Descriptor, MAX_SIZE, area, desc_at};
use crate::fault::QueueError;
use crate::features;
use crate::memory::{Area, GuestMemory};

/// `flags` of a ring: the end that writes the ring wants no notifications.
pub(crate) const NO_NOTIFICATION: u16 = 1;

/// Offset of `flags` in both rings.
pub(crate) const FLAGS: usize = 0;
/// Offset of `idx` in both rings.
pub(crate) const INDEX: usize = 2;
/// Offset of the entries in both rings.
pub(crate) const ENTRIES: usize = 4;

/// Reads a descriptor from its two words.
#[inline]
pub(crate) fn decode([addr, rest]: [u64; 2]) -> Descriptor {
    Descriptor { addr, len: rest as u32, flags: (rest >> 32) as u16, id_or_next: (rest >> 48) as u16 }
}

/// The two words of a descriptor.
#[inline]
pub(crate) fn encode(descriptor: Descriptor) -> [u64; 2] {
    let Descriptor { addr, len, flags, id_or_next } = descriptor;
    [addr, u64::from(len) | u64::from(flags) << 32 | u64::from(id_or_next) << 48]
}

/// Offset of an entry in the available ring of `size` entries.
#[inline]
pub(crate) fn avail_at(position: u16, size: u16) -> usize {
    ENTRIES + 2 * usize::from(position & (size - 1))
}

/// Offset of an entry (id, then length) in the used ring of `size` entries.
#[inline]
pub(crate) fn used_at(position: u16, size: u16) -> usize {
    ENTRIES + 8 * usize::from(position & (size - 1))
}

/// Offset of `used_event`, behind the entries of the available ring.
#[inline]
fn used_event_at(size: u16) -> usize {
    ENTRIES + 2 * usize::from(size)
}

/// Offset of `avail_event`, behind the entries of the used ring.
#[inline]
fn avail_event_at(size: u16) -> usize {
    ENTRIES + 8 * usize::from(size)
}

/// Bytes of the descriptor table, the available ring and the used ring.
pub(crate) fn area_lengths(size: u16, event_idx: bool) -> [usize; 3] {
    let event = if event_idx { 2 } else { 0 };
    [desc_at(size), used_event_at(size) + event, avail_event_at(size) + event]
}

/// Tells whether the index passed `event` on its way from `old` to `new` (2.7.7.2, 2.7.10).
#[inline]
fn passed_event(event: u16, new: u16, old: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}

/// The three areas of a split ring, mapped.
#[derive(Debug)]
pub(crate) struct Areas {
    /// Number of entries, a power of two.
    pub(crate) size: u16,
    event_idx: bool,
    pub(crate) desc: Area<16>,
    pub(crate) avail: Area<2>,
    pub(crate) used: Area<4>,
}

impl Areas {
    /// Maps the areas of a ring at the front-end addresses `[desc, avail, used]`.
    pub(crate) fn new(
        memory: &Arc<GuestMemory>,
        size: u16,
        [desc, avail, used]: [u64; 3],
        features: u64,
    ) -> Result<Self, QueueError> {
        if !size.is_power_of_two() || size > MAX_SIZE {
            return Err(QueueError::Size(size));
        }
        let event_idx = features & features::EVENT_IDX != 0;
        let [desc_len, avail_len, used_len] = area_lengths(size, event_idx);
        Ok(Self {
            size,
            event_idx,
            desc: area(memory, "descriptor table", desc, desc_len)?,
            avail: area(memory, "available ring", avail, avail_len)?,
            used: area(memory, "used ring", used, used_len)?,
        })
    }

    /// Offset of `used_event` in the available ring; `None` without `EVENT_IDX`.
    #[inline]
    pub(crate) fn used_event(&self) -> Option<usize> {
        self.event_idx.then(|| used_event_at(self.size))
    }

    /// Offset of `avail_event` in the used ring; `None` without `EVENT_IDX`.
    #[inline]
    pub(crate) fn avail_event(&self) -> Option<usize> {
        self.event_idx.then(|| avail_event_at(self.size))
    }

    /// Writes a descriptor of the table.
    #[inline]
    pub(crate) fn write_descriptor(&self, index: u16, descriptor: Descriptor) {
        let at = desc_at(index);
        let [low, high] = encode(descriptor);
        self.desc.store_u64(at, low);
        self.desc.store_u64(at + 8, high);
    }
}

/// State of the index that one end publishes, and of the notifications about it.
#[derive(Debug)]
pub(crate) struct Published {
    /// Index as the other end sees it.
    index: u16,
    /// Index when the other end was last notified, or found not to want a notification.
    notified: u16,
}

impl Published {
    /// Everything up to `index` is published and needs no notification.
    pub(crate) fn up_to(index: u16) -> Self {
        Self { index, notified: index }
    }

    /// Publishes everything up to `index` in this end's own ring.
    #[inline]
    pub(crate) fn publish<const ALIGN: usize>(&mut self, own: &Area<ALIGN>, index: u16) {
        if self.index != index {
            // Release: descriptors, entries and payload before the index.
            own.store_u16(INDEX, index, Ordering::Release);
            self.index = index;
        }
    }

    /// Tells whether the other end wants a notification of what was published since the last call.
    /// `event`: offset of the event in the ring `theirs`, which the other end writes.
    #[inline]
    pub(crate) fn needs_notification<const ALIGN: usize>(
        &mut self,
        theirs: &Area<ALIGN>,
        event: Option<usize>,
    ) -> bool {
        if self.index == self.notified {
            return false;
        }
        // The index must be visible before the other end's wish is read. Then either this end sees
        // a new wish, or the other end sees the index after it stated the wish.
        fence(Ordering::SeqCst);
        let old = std::mem::replace(&mut self.notified, self.index);
        match event {
            Some(at) => passed_event(theirs.load_u16(at, Ordering::Relaxed), self.index, old),
            None => wants_notifications(theirs),
        }
    }
}

/// Tells whether the flags of the ring that the other end writes allow notifications.
#[inline]
pub(crate) fn wants_notifications<const ALIGN: usize>(theirs: &Area<ALIGN>) -> bool {
    theirs.load_u16(FLAGS, Ordering::Relaxed) & NO_NOTIFICATION == 0
}

/// Asks the other end not to notify. `event`: offset of the event in this end's own ring.
pub(crate) fn suspend_notifications<const ALIGN: usize>(own: &Area<ALIGN>, event: Option<usize>) {
    // With EVENT_IDX there is nothing to do: the other end has passed the old event and does not
    // pass it again.
    if event.is_none() {
        own.store_u16(FLAGS, NO_NOTIFICATION, Ordering::Relaxed);
    }
}

/// Asks the other end to notify once its index passes `seen`. Returns true if it already has.
/// `event`: offset of the event in this end's own ring.
pub(crate) fn arm_notifications<const OWN: usize, const THEIRS: usize>(
    own: &Area<OWN>,
    event: Option<usize>,
    theirs: &Area<THEIRS>,
    seen: u16,
) -> bool {
    match event {
        Some(at) => own.store_u16(at, seen, Ordering::Relaxed),
        None => own.store_u16(FLAGS, 0, Ordering::Relaxed),
    }
    // The wish must be visible before the index is read again. Otherwise both ends miss a buffer
    // that comes now.
    fence(Ordering::SeqCst);
    theirs.load_u16(INDEX, Ordering::Relaxed) != seen
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Compares the arithmetic with its definition: one of the steps from `old` leaves `event`.
        #[test]
        fn an_event_is_passed_when_a_step_leaves_it(
            old: u16, steps in 0u16..2000, ahead in -3000i32..3000,
        ) {
            let event = old.wrapping_add(ahead as u16);
            let stepped = (0..steps).any(|step| old.wrapping_add(step) == event);
            prop_assert_eq!(passed_event(event, old.wrapping_add(steps), old), stepped);
        }
    }
}
