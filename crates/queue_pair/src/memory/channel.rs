//! One channel of a region: its words, and where its rings are.
#![allow(unsafe_code, reason = "words are found without a check at each use")]

use std::borrow::Borrow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{Copying, Memory, RingBytes};
use crate::layout::{Direction, Geometry, PAGE, Word};

// The words are in the first page of a channel, aligned to their size.
const _: () = {
    let mut at = 0;
    while at < Word::ALL.len() {
        let offset = Word::ALL[at].offset();
        assert!(offset.is_multiple_of(4) && offset + 4 <= PAGE as usize);
        at += 1;
    }
};

/// A channel. It keeps the memory mapped, or borrows it ([`Region::channel_ref`]).
///
/// [`Region::channel_ref`]: super::Region::channel_ref
#[derive(Debug, Clone)]
pub struct Channel<M = Arc<Memory>> {
    memory: M,
    index: u32,
    /// Offset of the channel in the memory, in bytes. A multiple of a page. The memory has at least
    /// a page from there on.
    base: usize,
    /// Length of each ring, in bytes. A power of two.
    ring_len: u32,
}

impl<M: Borrow<Memory> + Clone> Channel<M> {
    /// The channel at an offset that the geometry says, in memory that has all of the geometry. `M`
    /// is an `Arc` or a reference, which stay those of one memory.
    #[inline]
    pub(super) fn new(memory: M, geometry: &Geometry, index: u32, base: usize) -> Self {
        assert!(base.is_multiple_of(PAGE as usize) && geometry.channel_len() >= PAGE);
        assert!(base as u64 + geometry.channel_len() <= memory.borrow().len() as u64);
        Self { memory, index, base, ring_len: geometry.ring_len() }
    }

    /// Index of the channel in its region.
    #[inline]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Length of each ring, in bytes: a power of two.
    #[inline]
    pub fn ring_len(&self) -> u32 {
        self.ring_len
    }

    /// Zeroes all words. The fabric does this before it gives the channel to a connection.
    pub fn clear(&self) {
        for word in Word::ALL {
            self.store(word, 0);
        }
    }

    /// Reads a word.
    #[inline]
    pub fn load(&self, word: Word) -> u32 {
        self.word(word).load(Ordering::Acquire)
    }

    /// Writes a word. Everything that was written before is visible to who reads the new value.
    #[inline]
    pub fn store(&self, word: Word, value: u32) {
        self.word(word).store(value, Ordering::Release);
    }

    /// A word, which the other side may change at any time.
    #[inline]
    pub(crate) fn word(&self, word: Word) -> &AtomicU32 {
        // SAFETY: `new` has checked that a page from `base` on is in the memory, and that it begins
        // at a page. The word is in that page and aligned: see the assertion above. Memory never
        // changes its length, and neither an `Arc` nor a reference becomes that of another one.
        unsafe { self.memory.borrow().word(self.base + word.offset()) }
    }

    /// The bytes of a ring.
    #[inline]
    pub(crate) fn ring(&self, direction: Direction, copying: Copying) -> RingBytes<M> {
        let at = match direction {
            Direction::Out => self.base + PAGE as usize,
            Direction::In => self.base + PAGE as usize + self.ring_len as usize,
        };
        RingBytes::new(self.memory.clone(), at, self.ring_len, copying)
    }
}
