//! Layout of packed virtqueues (2.8), and what both of their ends do in the same way.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use super::{Descriptor, MAX_SIZE, area, desc_at};
use crate::fault::QueueError;
use crate::features;
use crate::memory::{Area, GuestMemory};

/// Descriptor flag that says, together with the wrap counter of the end that wrote it, whether the
/// descriptor is available (2.8.1).
pub(crate) const DESC_AVAIL: u16 = 1 << 7;
/// Descriptor flag that says likewise whether the descriptor is used.
pub(crate) const DESC_USED: u16 = 1 << 15;

/// Bytes of an event suppression structure (2.8.14).
const EVENT_LEN: usize = 4;

/// Reads a descriptor from its two words.
#[inline]
pub(crate) fn decode([addr, rest]: [u64; 2]) -> Descriptor {
    Descriptor { addr, len: rest as u32, id_or_next: (rest >> 32) as u16, flags: (rest >> 48) as u16 }
}

/// The two words of a descriptor.
#[inline]
pub(crate) fn encode(descriptor: Descriptor) -> [u64; 2] {
    [descriptor.addr, u64::from(descriptor.len) | u64::from(id_and_flags(descriptor)) << 32]
}

/// The upper half of a descriptor's second word: buffer ID and flags.
#[inline]
pub(crate) fn id_and_flags(descriptor: Descriptor) -> u32 {
    u32::from(descriptor.id_or_next) | u32::from(descriptor.flags) << 16
}

/// Offset of the word that holds the length, ID and flags of a descriptor.
#[inline]
pub(crate) fn state_at(index: u16) -> usize {
    desc_at(index) + 8
}

/// Offset of the ID and flags of a descriptor.
#[inline]
pub(crate) fn id_at(index: u16) -> usize {
    desc_at(index) + 12
}

/// A position in the ring, with the wrap counter of the end that has it. The wrap counter changes
/// each time that the index wraps around (2.8.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) index: u16,
    pub(crate) wrap: bool,
}

impl Position {
    /// First position of both ends.
    pub(crate) const START: Self = Self { index: 0, wrap: true };

    /// Reads the form in event suppression structures and in vhost-user: 15 bits of index, then the
    /// wrap counter.
    #[inline]
    pub(crate) fn from_bits(bits: u16) -> Self {
        Self { index: bits & !(1 << 15), wrap: bits >> 15 != 0 }
    }

    /// The form that [`Self::from_bits`] reads.
    #[inline]
    pub(crate) const fn to_bits(self) -> u16 {
        self.index | (self.wrap as u16) << 15
    }

    /// The position `count` descriptors further on in a ring of `size`; `count` is at most `size`.
    #[inline]
    pub(crate) fn advance(self, count: u16, size: u16) -> Self {
        debug_assert!(count <= size && self.index < size && size <= MAX_SIZE);
        let index = self.index + count;
        if index < size { Self { index, ..self } } else { Self { index: index - size, wrap: !self.wrap } }
    }

    /// The flags that make the descriptor at this position available.
    #[inline]
    pub(crate) fn available_flags(self) -> u16 {
        if self.wrap { DESC_AVAIL } else { DESC_USED }
    }

    /// The flags that make the descriptor at this position used.
    #[inline]
    pub(crate) fn used_flags(self) -> u16 {
        if self.wrap { DESC_AVAIL | DESC_USED } else { 0 }
    }

    /// Tells whether these flags make the descriptor at this position available.
    #[inline]
    pub(crate) fn is_available(self, flags: u16) -> bool {
        flags & (DESC_AVAIL | DESC_USED) == self.available_flags()
    }

    /// Tells whether these flags make the descriptor at this position used.
    #[inline]
    pub(crate) fn is_used(self, flags: u16) -> bool {
        flags & (DESC_AVAIL | DESC_USED) == self.used_flags()
    }
}

/// Which notifications one end wants (2.8.14).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// A notification of every batch.
    Enable,
    /// No notifications.
    Disable,
    /// A notification when the other end passes this position. Requires `EVENT_IDX`.
    At(Position),
}

impl Event {
    #[inline]
    pub(crate) fn from_word(word: u32) -> Self {
        match word >> 16 & 3 {
            1 => Self::Disable,
            2 => Self::At(Position::from_bits(word as u16)),
            // 3 is reserved. A superfluous notification does no harm, a missing one may.
            _ => Self::Enable,
        }
    }

    #[inline]
    pub(crate) fn to_word(self) -> u32 {
        match self {
            Self::Enable => 0,
            Self::Disable => 1 << 16,
            Self::At(position) => 2 << 16 | u32::from(position.to_bits()),
        }
    }

    /// Tells whether the other end wants a notification of the last `moved` descriptors (at most
    /// `size`) before the position `now`.
    #[inline]
    pub(crate) fn wants(self, now: Position, moved: u16, size: u16) -> bool {
        match self {
            Self::Enable => true,
            Self::Disable => false,
            Self::At(event) => {
                let turn = if event.wrap == now.wrap { 0 } else { i32::from(size) };
                let behind = i32::from(now.index) + turn - i32::from(event.index);
                (1..=i32::from(moved)).contains(&behind)
            }
        }
    }
}

/// The three areas of a packed ring, mapped.
#[derive(Debug)]
pub(crate) struct Areas {
    /// Number of entries.
    pub(crate) size: u16,
    event_idx: bool,
    pub(crate) desc: Area<16>,
    /// Which notifications the driver wants.
    pub(crate) driver_event: Area<4>,
    /// Which notifications the device wants.
    pub(crate) device_event: Area<4>,
}

impl Areas {
    /// Maps the areas of a ring at the front-end addresses `[desc, driver, device]`.
    pub(crate) fn new(
        memory: &Arc<GuestMemory>,
        size: u16,
        [desc, driver, device]: [u64; 3],
        features: u64,
    ) -> Result<Self, QueueError> {
        if size == 0 || size > MAX_SIZE {
            return Err(QueueError::PackedSize(size));
        }
        Ok(Self {
            size,
            event_idx: features & features::EVENT_IDX != 0,
            desc: area(memory, "descriptor ring", desc, desc_at(size))?,
            driver_event: area(memory, "driver area", driver, EVENT_LEN)?,
            device_event: area(memory, "device area", device, EVENT_LEN)?,
        })
    }

    /// Reads everything of a descriptor but its address.
    #[inline]
    pub(crate) fn load(&self, at: Position) -> Descriptor {
        // Acquire: the address, the descriptors behind and the buffers were written before the
        // flags.
        decode([0, self.desc.load_u64_acquire(state_at(at.index))])
    }

    /// Asks the other end, by this end's own event structure, to notify once it passes `at`.
    /// Returns true if the descriptor there has become `ready` in the meantime.
    pub(crate) fn arm_notifications(
        &self,
        own: &Area<4>,
        at: Position,
        ready: impl FnOnce(u16) -> bool,
    ) -> bool {
        let event = if self.event_idx { Event::At(at) } else { Event::Enable };
        own.store_u32(0, event.to_word());
        // The wish must be visible before the ring is read again. Otherwise both ends miss a
        // descriptor that comes now.
        fence(Ordering::SeqCst);
        ready(self.load(at).flags)
    }
}

/// Tells whether the other end wants a notification of the `moved` descriptors up to `now`, and
/// resets `moved`. `theirs`: the event structure that the other end writes.
#[inline]
pub(crate) fn needs_notification(theirs: &Area<4>, moved: &mut u16, now: Position, size: u16) -> bool {
    let moved = std::mem::take(moved);
    if moved == 0 {
        return false;
    }
    // The flags must be visible before the other end's wish is read. Then either this end sees a
    // new wish, or the other end sees the flags after it stated the wish.
    fence(Ordering::SeqCst);
    Event::from_word(theirs.load_u32(0)).wants(now, moved, size)
}

/// Asks the other end, by this end's own event structure, not to notify.
pub(crate) fn suspend_notifications(own: &Area<4>) {
    own.store_u32(0, Event::Disable.to_word());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn encoding_and_advancing_a_position_agree_with_single_steps(
            size in 1..=MAX_SIZE, index: u16, wrap: bool, count: u16,
        ) {
            let start = Position { index: index % size, wrap };
            prop_assert_eq!(Position::from_bits(start.to_bits()), start);
            let count = count % (size + 1);
            let stepped = (0..count).fold(start, |at, _| at.advance(1, size));
            prop_assert_eq!(start.advance(count, size), stepped);
            prop_assert!(start.is_available(start.available_flags()) && !start.is_used(start.available_flags()));
            prop_assert!(start.is_used(start.used_flags()) && !start.is_available(start.used_flags()));
            let turned = start.advance(size, size);
            prop_assert!(!turned.is_used(start.used_flags()) && !turned.is_available(start.available_flags()));
        }

        /// Compares the arithmetic with its definition: one of the steps leaves the event's
        /// position.
        #[test]
        fn an_event_is_wanted_when_a_step_leaves_it(
            size in 1..300u16, index: u16, wrap: bool, moved: u16, event: u16, event_wrap: bool,
        ) {
            let old = Position { index: index % size, wrap };
            let moved = moved % (size + 1);
            let event = Position { index: event % size, wrap: event_wrap };
            let left = (0..moved).any(|step| old.advance(step, size) == event);
            let wants = Event::At(event).wants(old.advance(moved, size), moved, size);
            prop_assert_eq!(wants, left);
            prop_assert_eq!(Event::from_word(Event::At(event).to_word()), Event::At(event));
        }
    }

    #[test]
    fn encoding_and_decoding_an_event_changes_nothing() {
        for event in [Event::Enable, Event::Disable] {
            assert_eq!(Event::from_word(event.to_word()), event);
            assert_eq!(event.wants(Position::START, 1, 8), event == Event::Enable);
        }
        assert_eq!(Event::from_word(3 << 16), Event::Enable, "reserved");
    }
}
