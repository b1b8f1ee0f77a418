//! Ring formats, for both ends: [`split`] (2.7) and [`packed`] (2.8), and how a queue is set up.

mod config;
pub(crate) mod packed;
mod position_log;
pub(crate) mod split;

use std::sync::Arc;

pub use config::{QueueConfig, Start, first_position};
pub use position_log::PositionLog;

use crate::fault::QueueError;
use crate::memory::{Area, AreaError, GuestMemory};

/// Descriptor flag: the chain continues in another descriptor.
pub(crate) const DESC_NEXT: u16 = 1;
/// Descriptor flag: the device writes the buffer. Without it, the device reads the buffer.
pub(crate) const DESC_WRITE: u16 = 2;
/// Descriptor flag: the buffer is a table of descriptors.
pub(crate) const DESC_INDIRECT: u16 = 4;
/// Bytes of one descriptor.
pub(crate) const DESC_LEN: usize = 16;

/// Most entries of a queue (2.7, 2.8.10.1).
pub(crate) const MAX_SIZE: u16 = 1 << 15;

/// A ring in either format.
#[derive(Debug)]
pub(crate) enum Format<S, P> {
    Split(S),
    Packed(P),
}

/// Evaluates the same expression for a [`Format`], whichever it is.
macro_rules! each {
    ($format:expr, $ring:ident => $action:expr) => {
        match $format {
            $crate::ring::Format::Split($ring) => $action,
            $crate::ring::Format::Packed($ring) => $action,
        }
    };
}
pub(crate) use each;

/// One buffer of a chain, as the driver describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Guest address.
    pub addr: u64,
    /// Length in bytes.
    pub len: u32,
    /// True if the device writes the buffer. Otherwise the device reads it.
    pub writable: bool,
}

impl Part {
    /// The descriptor flags that say who writes the buffer.
    #[inline]
    pub(crate) fn flags(self) -> u16 {
        if self.writable { DESC_WRITE } else { 0 }
    }
}

/// A descriptor, read once. Both formats have the same fields in another order; see
/// [`split::decode`] and [`packed::decode`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Descriptor {
    pub(crate) addr: u64,
    pub(crate) len: u32,
    /// Split: index of the chain's next descriptor. Packed: buffer ID.
    pub(crate) id_or_next: u16,
    // Stands last, as in packed rings: the compiler then writes ID and flags as one word.
    pub(crate) flags: u16,
}

impl Descriptor {
    #[inline]
    pub(crate) fn has(self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// The buffer that this descriptor describes.
    #[inline]
    pub(crate) fn part(self) -> Part {
        Part { addr: self.addr, len: self.len, writable: self.has(DESC_WRITE) }
    }
}

/// Offset of a descriptor in its table or ring.
#[inline]
pub(crate) fn desc_at(index: u16) -> usize {
    usize::from(index) * DESC_LEN
}

/// Maps one area of a queue. An area must lie in one memory region and be aligned to `ALIGN` bytes.
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
        fn encoding_and_decoding_a_descriptor_changes_nothing(
            addr: u64, len: u32, flags: u16, id_or_next: u16,
        ) {
            let descriptor = Descriptor { addr, len, id_or_next, flags };
            prop_assert_eq!(split::decode(split::encode(descriptor)), descriptor);
            prop_assert_eq!(packed::decode(packed::encode(descriptor)), descriptor);
        }
    }
}
