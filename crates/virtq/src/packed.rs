//! Layout of packed virtqueues (2.8), common to both ends.

use crate::split::DESC_LEN;

/// With the wrap counter of its writer, says whether a descriptor is available or used (2.8.1).
pub(crate) const DESC_AVAIL: u16 = 1 << 7;
/// Likewise.
pub(crate) const DESC_USED: u16 = 1 << 15;

/// Largest queue; any size up to this is possible (2.8.10.1).
pub(crate) const MAX_SIZE: u16 = 1 << 15;

/// Bytes of an event suppression structure (2.8.14).
pub(crate) const EVENT_LEN: usize = 4;

/// A descriptor, read once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Descriptor {
    pub(crate) addr: u64,
    pub(crate) len: u32,
    pub(crate) id: u16,
    pub(crate) flags: u16,
}

impl Descriptor {
    #[inline]
    pub(crate) fn from_words([addr, rest]: [u64; 2]) -> Self {
        Self { addr, len: rest as u32, id: (rest >> 32) as u16, flags: (rest >> 48) as u16 }
    }

    #[inline]
    pub(crate) fn to_words(self) -> [u64; 2] {
        [self.addr, u64::from(self.len) | u64::from(self.id_and_flags()) << 32]
    }

    /// The second half of the second word.
    #[inline]
    pub(crate) fn id_and_flags(self) -> u32 {
        u32::from(self.id) | u32::from(self.flags) << 16
    }

    #[inline]
    pub(crate) fn has(self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

/// Offset of a descriptor's address.
#[inline]
pub(crate) fn desc_at(index: u16) -> usize {
    usize::from(index) * DESC_LEN
}

/// Offset of the word with a descriptor's length, id and flags.
#[inline]
pub(crate) fn state_at(index: u16) -> usize {
    desc_at(index) + 8
}

/// Offset of a descriptor's id and flags.
#[inline]
pub(crate) fn id_at(index: u16) -> usize {
    desc_at(index) + 12
}

/// A place in the ring, with its writer's or reader's wrap counter, which changes at each turn (2.8.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) index: u16,
    pub(crate) wrap: bool,
}

impl Position {
    /// Where both ends begin.
    pub(crate) const START: Self = Self { index: 0, wrap: true };

    /// The form in event suppression structures and in vhost-user: 15 bits of index, then the wrap counter.
    #[inline]
    pub(crate) fn from_bits(bits: u16) -> Self {
        Self { index: bits & !(1 << 15), wrap: bits >> 15 != 0 }
    }

    #[inline]
    pub(crate) const fn to_bits(self) -> u16 {
        self.index | (self.wrap as u16) << 15
    }

    /// The place `count` descriptors further on in a ring of `size`; `count` is at most `size`.
    #[inline]
    pub(crate) fn advance(self, count: u16, size: u16) -> Self {
        debug_assert!(count <= size && self.index < size && size <= MAX_SIZE);
        let index = self.index + count;
        if index < size { Self { index, ..self } } else { Self { index: index - size, wrap: !self.wrap } }
    }

    /// The flags that make a descriptor here available.
    #[inline]
    pub(crate) fn available_flags(self) -> u16 {
        if self.wrap { DESC_AVAIL } else { DESC_USED }
    }

    /// The flags that make a descriptor here used.
    #[inline]
    pub(crate) fn used_flags(self) -> u16 {
        if self.wrap { DESC_AVAIL | DESC_USED } else { 0 }
    }

    /// Do these flags say that the descriptor here is available?
    #[inline]
    pub(crate) fn is_available(self, flags: u16) -> bool {
        flags & (DESC_AVAIL | DESC_USED) == self.available_flags()
    }

    /// Do these flags say that the descriptor here is used?
    #[inline]
    pub(crate) fn is_used(self, flags: u16) -> bool {
        flags & (DESC_AVAIL | DESC_USED) == self.used_flags()
    }
}

/// What one end wants to be told (2.8.14).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// Everything.
    Enable,
    /// Nothing.
    Disable,
    /// When the other end passes this place. Only with `EVENT_IDX`.
    At(Position),
}

impl Event {
    #[inline]
    pub(crate) fn from_word(word: u32) -> Self {
        match word >> 16 & 3 {
            1 => Self::Disable,
            2 => Self::At(Position::from_bits(word as u16)),
            // 3 is reserved; a notification too many does no harm, one too few may.
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

    /// Must the other end be told, after `moved` descriptors (at most `size`) up to the place `now`?
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn descriptors_survive_their_words(addr: u64, len: u32, id: u16, flags: u16) {
            let descriptor = Descriptor { addr, len, id, flags };
            prop_assert_eq!(Descriptor::from_words(descriptor.to_words()), descriptor);
        }

        #[test]
        fn positions_survive_their_bits_and_many_steps_are_as_single_ones(
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

        /// The arithmetic against its meaning: one of the steps leaves the place that was asked for.
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
    fn what_is_wanted_survives_its_word() {
        for event in [Event::Enable, Event::Disable] {
            assert_eq!(Event::from_word(event.to_word()), event);
            assert_eq!(event.wants(Position::START, 1, 8), event == Event::Enable);
        }
        assert_eq!(Event::from_word(3 << 16), Event::Enable, "reserved");
    }
}
