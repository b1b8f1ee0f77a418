//! Layout of split virtqueues (2.7), common to both ends.

use std::sync::Arc;

use crate::fault::QueueError;
use crate::memory::{Area, AreaError, GuestMemory};

/// The buffer goes on in the descriptor `next`.
pub(crate) const DESC_NEXT: u16 = 1;
/// The device writes the buffer; otherwise it reads it.
pub(crate) const DESC_WRITE: u16 = 2;
/// The buffer is a table of descriptors.
pub(crate) const DESC_INDIRECT: u16 = 4;
/// Bytes of one descriptor.
pub(crate) const DESC_LEN: usize = 16;

/// `flags` of the available ring: the driver wants no interrupts.
pub(crate) const AVAIL_NO_INTERRUPT: u16 = 1;
/// `flags` of the used ring: the device wants no kicks.
pub(crate) const USED_NO_NOTIFY: u16 = 1;

/// Offset of `flags` in both rings.
pub(crate) const FLAGS: usize = 0;
/// Offset of `idx` in both rings.
pub(crate) const INDEX: usize = 2;
/// Offset of the entries in both rings.
pub(crate) const ENTRIES: usize = 4;

/// Largest queue.
pub(crate) const MAX_SIZE: u16 = 1 << 15;

/// A descriptor, read once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Descriptor {
    pub(crate) addr: u64,
    pub(crate) len: u32,
    pub(crate) flags: u16,
    pub(crate) next: u16,
}

impl Descriptor {
    #[inline]
    pub(crate) fn from_words([addr, rest]: [u64; 2]) -> Self {
        Self { addr, len: rest as u32, flags: (rest >> 32) as u16, next: (rest >> 48) as u16 }
    }

    #[inline]
    pub(crate) fn to_words(self) -> [u64; 2] {
        [self.addr, u64::from(self.len) | u64::from(self.flags) << 32 | u64::from(self.next) << 48]
    }

    #[inline]
    pub(crate) fn has(self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

/// Offset of a descriptor in its table.
#[inline]
pub(crate) fn desc_at(index: u16) -> usize {
    usize::from(index) * DESC_LEN
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

/// Offset of `used_event`, behind the available ring's entries.
#[inline]
pub(crate) fn used_event_at(size: u16) -> usize {
    ENTRIES + 2 * usize::from(size)
}

/// Offset of `avail_event`, behind the used ring's entries.
#[inline]
pub(crate) fn avail_event_at(size: u16) -> usize {
    ENTRIES + 8 * usize::from(size)
}

/// Bytes of the descriptor table, the available and the used ring.
pub(crate) fn area_lengths(size: u16, event_idx: bool) -> [usize; 3] {
    let event = if event_idx { 2 } else { 0 };
    [desc_at(size), used_event_at(size) + event, avail_event_at(size) + event]
}

/// Did the index pass `event` on its way from `old` to `new`? (2.7.7.2, 2.7.10)
#[inline]
pub(crate) fn passed_event(event: u16, new: u16, old: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}

/// One of the three areas, which must lie in one region and be aligned as 2.7 demands.
pub(crate) fn area<const ALIGN: usize>(
    memory: &Arc<GuestMemory>,
    area: &'static str,
    addr: u64,
    len: usize,
) -> Result<Area<ALIGN>, QueueError> {
    Area::at_user_addr(memory, addr, len).map_err(|error| match error {
        AreaError::Unmapped => QueueError::Unmapped { area, addr, len: len as u64 },
        AreaError::Misaligned => QueueError::Misaligned { area, addr, align: ALIGN as u64 },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn descriptors_survive_their_words(addr: u64, len: u32, flags: u16, next: u16) {
            let descriptor = Descriptor { addr, len, flags, next };
            prop_assert_eq!(Descriptor::from_words(descriptor.to_words()), descriptor);
        }

        /// The arithmetic against its meaning: some step from `old` towards `new` leaves the entry `event`.
        #[test]
        fn an_event_is_passed_when_a_step_leaves_it(old: u16, steps in 0u16..2000, ahead in -3000i32..3000) {
            let event = old.wrapping_add(ahead as u16);
            let stepped = (0..steps).any(|step| old.wrapping_add(step) == event);
            prop_assert_eq!(passed_event(event, old.wrapping_add(steps), old), stepped);
        }
    }
}
