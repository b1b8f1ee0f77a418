//! Buffers of equal length, one for each descriptor of a queue.

use std::sync::Arc;

use super::{Part, Ram};
use crate::header;
use crate::memory::{Buffer, Segments};

#[derive(Debug)]
pub(super) struct Buffers {
    start: u64,
    len: u32,
    /// Segment `i` is buffer `i`.
    segments: Segments,
}

impl Buffers {
    /// `count` buffers, each on cache lines of its own; `None` when the memory is used up.
    pub(super) fn allocate(ram: &mut Ram, count: u16, len: u32) -> Option<Self> {
        let len = len.max(header::LEN as u32).checked_next_multiple_of(64)?;
        let start = ram.allocate(u64::from(count) * u64::from(len), 64)?;
        let mut segments = Segments::new(Arc::clone(ram.memory()), count.into());
        for index in 0..u64::from(count) {
            if !segments.push(start + index * u64::from(len), len.into()) {
                return None;
            }
        }
        Some(Self { start, len, segments })
    }

    /// Length of each in bytes.
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// A descriptor's buffer.
    #[inline]
    pub(super) fn at(&self, index: u16) -> Buffer<'_> {
        self.segments.buffer(index.into(), 1)
    }

    /// The first `len` bytes of a descriptor's buffer, as part of a chain.
    #[inline]
    pub(super) fn part(&self, index: u16, len: u32, writable: bool) -> Part {
        Part { addr: self.start + u64::from(index) * u64::from(self.len), len, writable }
    }
}
