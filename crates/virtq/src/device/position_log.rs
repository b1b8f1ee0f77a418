//! Where a packed ring stands, written down outside guest memory for whoever goes on after a crash.
//!
//! A split ring says so by itself: its used index. A packed ring's descriptors say what was used, not up to where; the
//! positions are the ends' own knowledge. So the device writes them down before each batch becomes visible.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::counters::SharedWords;
use crate::packed::Position;

/// Bit that tells a word that was written from one that never was.
const VALID: u64 = 1 << 32;

/// One word for one ring: the position of the last batch, and the one behind it.
#[derive(Debug, Clone)]
pub struct PositionLog {
    words: Arc<SharedWords>,
    index: usize,
}

impl PositionLog {
    /// The word of this index; `None` if there is none.
    pub fn new(words: &Arc<SharedWords>, index: usize) -> Option<Self> {
        (index < words.words().len()).then(|| Self { words: Arc::clone(words), index })
    }

    /// A batch from `old` to `new` becomes visible by the next store to guest memory.
    #[inline]
    pub(super) fn store(&self, old: Position, new: Position) {
        let word = VALID | u64::from(new.to_bits()) << 16 | u64::from(old.to_bits());
        // The store that shows the batch is a release store: it is not seen without this one.
        self.words.words()[self.index].store(word, Ordering::Relaxed);
    }

    /// The last batch, if a word was ever written.
    pub(super) fn load(&self) -> Option<(Position, Position)> {
        let word = self.words.words()[self.index].load(Ordering::Relaxed);
        let position = |bits: u64| Position::from_bits(bits as u16);
        (word & VALID != 0).then(|| (position(word), position(word >> 16)))
    }
}
