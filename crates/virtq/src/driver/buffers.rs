//! Buffers of equal length, one for each descriptor of a queue.

use std::sync::Arc;

use super::{QueueLayout, Ram, Ring, UsedFault};
use crate::fault::QueueError;
use crate::header;
use crate::memory::{Buffer, Spans};
use crate::ring::Part;

/// Result of setting up a driver end: `None` when the memory is used up.
pub(super) type SetUp<T> = Result<Option<T>, QueueError>;

/// The driver end of a ring, with a buffer for each descriptor.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) ring: Ring,
    pub(super) buffers: Buffers,
}

impl Queue {
    /// Sets up a ring with buffers of `len` bytes, at least as long as a network header.
    pub(super) fn new(ram: &mut Ram, layout: QueueLayout, features: u64, len: u32) -> SetUp<Self> {
        let ring = Ring::new(ram.memory(), layout, features)?;
        Ok(Buffers::allocate(ram, layout.size, len).map(|buffers| Self { ring, buffers }))
    }

    /// Takes back all chains that the device is done with. Returns how many.
    pub(super) fn reclaim(&mut self) -> Result<usize, UsedFault> {
        let mut count = 0;
        while self.ring.poll_used()?.is_some() {
            count += 1;
        }
        Ok(count)
    }
}

/// The buffers of a queue. A descriptor and its buffer have the same index.
#[derive(Debug)]
pub(super) struct Buffers {
    start: u64,
    len: u32,
    /// Span `i` is buffer `i`.
    spans: Spans,
}

impl Buffers {
    /// Allocates `count` buffers, each on cache lines of its own; `None` when the memory is used
    /// up.
    fn allocate(ram: &mut Ram, count: u16, len: u32) -> Option<Self> {
        let len = len.max(header::LEN as u32).checked_next_multiple_of(64)?;
        let start = ram.allocate(u64::from(count) * u64::from(len), 64)?;
        let mut spans = Spans::new(Arc::clone(ram.memory()), count.into());
        for index in 0..u64::from(count) {
            if !spans.push(start + index * u64::from(len), len.into()) {
                return None;
            }
        }
        Some(Self { start, len, spans })
    }

    /// Length of each buffer in bytes.
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// The buffer of a descriptor.
    #[inline]
    pub(super) fn at(&self, index: u16) -> Buffer<'_> {
        self.spans.buffer(index.into(), 1)
    }

    /// The first `len` bytes of a descriptor's buffer, as a part of a chain.
    #[inline]
    pub(super) fn part(&self, index: u16, len: u32, writable: bool) -> Part {
        Part { addr: self.start + u64::from(index) * u64::from(self.len), len, writable }
    }
}
