//! The position of a packed ring, logged outside guest memory so that the next process can go on
//! after a crash.
//!
//! The used index of a split ring tells its position. The descriptors of a packed ring tell what
//! was used but not up to where; only the two ends know their positions. The device therefore logs
//! them before each batch becomes visible.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::packed::Position;
use crate::counters::SharedWords;

/// Bit that distinguishes a word that was written from one that never was.
const VALID: u64 = 1 << 32;

/// One word for one ring: the positions at the start and at the end of the last batch.
#[derive(Debug, Clone)]
pub struct PositionLog {
    words: Arc<SharedWords>,
    index: usize,
}

impl PositionLog {
    /// Uses the word at `index`; `None` if there is no such word.
    pub fn new(words: &Arc<SharedWords>, index: usize) -> Option<Self> {
        (index < words.words().len()).then(|| Self { words: Arc::clone(words), index })
    }

    /// Logs a batch from `old` to `new`. The next store to guest memory makes the batch visible.
    #[inline]
    pub(crate) fn store(&self, old: Position, new: Position) {
        let word = VALID | u64::from(new.to_bits()) << 16 | u64::from(old.to_bits());
        // The store that shows the batch is a release store, so nobody sees that one without this
        // one.
        self.words.words()[self.index].store(word, Ordering::Relaxed);
    }

    /// The last batch, from its start to its end; `None` if none was ever logged.
    pub(crate) fn load(&self) -> Option<(Position, Position)> {
        let word = self.words.words()[self.index].load(Ordering::Relaxed);
        let position = |bits: u64| Position::from_bits(bits as u16);
        (word & VALID != 0).then(|| (position(word), position(word >> 16)))
    }
}
