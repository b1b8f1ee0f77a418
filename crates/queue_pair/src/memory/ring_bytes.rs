//! The bytes of a ring: copies in and out that wrap around its end.

use std::borrow::Borrow;
use std::mem::MaybeUninit;
use std::sync::Arc;

use super::{Copying, Memory};

/// The bytes of one ring. Positions count bytes modulo 2^32.
#[derive(Debug)]
pub(crate) struct RingBytes<M = Arc<Memory>> {
    memory: M,
    /// Offset of the ring in the memory, in bytes.
    base: usize,
    /// Length of the ring in bytes. A power of two, so positions keep their meaning when they wrap.
    len: u32,
    copying: Copying,
}

impl<M: Borrow<Memory>> RingBytes<M> {
    /// The ring of `len` bytes at an offset.
    ///
    /// # Panics
    /// If the ring is not in the memory, or its length is not a power of two.
    #[inline]
    pub(super) fn new(memory: M, base: usize, len: u32, copying: Copying) -> Self {
        assert!(len.is_power_of_two());
        memory.borrow().at(base, len as usize);
        Self { memory, base, len, copying }
    }

    /// Length in bytes.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Where `len` bytes from a position on are: up to two parts, each an offset in the memory and
    /// a length.
    ///
    /// # Panics
    /// If the ring is shorter.
    #[inline]
    fn parts(&self, position: u32, len: usize) -> [(usize, usize); 2] {
        assert!(len <= self.len as usize, "more bytes than the ring has");
        let start = (position & (self.len - 1)) as usize;
        let first = len.min(self.len as usize - start);
        [(self.base + start, first), (self.base, len - first)]
    }

    /// Copies bytes out.
    #[inline]
    pub(crate) fn copy_out(&self, position: u32, out: &mut [MaybeUninit<u8>]) {
        let [first, second] = self.parts(position, out.len());
        let (start, rest) = out.split_at_mut(first.1);
        self.memory.borrow().copy_out(first.0, start, self.copying);
        if second.1 > 0 {
            self.memory.borrow().copy_out(second.0, rest, self.copying);
        }
    }

    /// Copies bytes in.
    #[inline]
    pub(crate) fn copy_in(&self, position: u32, bytes: &[u8]) {
        let [first, second] = self.parts(position, bytes.len());
        let (start, rest) = bytes.split_at(first.1);
        self.memory.borrow().copy_in(first.0, start, self.copying);
        if second.1 > 0 {
            self.memory.borrow().copy_in(second.0, rest, self.copying);
        }
    }

    /// Copies bytes in from another ring.
    #[inline]
    pub(crate) fn copy_from<F: Borrow<Memory>>(
        &self,
        position: u32,
        from: &RingBytes<F>,
        at: u32,
        len: usize,
    ) {
        let (ours, theirs) = (self.memory.borrow(), from.memory.borrow());
        let mut done = 0;
        for (offset, part) in from.parts(at, len) {
            let [first, second] = self.parts(position.wrapping_add(done as u32), part);
            ours.copy_from(first.0, theirs, offset, first.1, self.copying);
            ours.copy_from(second.0, theirs, offset + first.1, second.1, self.copying);
            done += part;
        }
    }
}
