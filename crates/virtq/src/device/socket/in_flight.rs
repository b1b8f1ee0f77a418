//! Which packets of a transmit queue are taken, written down outside guest memory for whoever goes on after a crash.
//!
//! A ring whose chains come back in order says by its used index where it stands. Out of order, three things must be known:
//! which heads are *in flight* (taken, and not yet returned in the driver's eyes), the used index, and the position of the
//! next available entry. The used index is in guest memory; the heads are here, a bit each; and since each entry that was
//! passed is either used or in flight,
//!
//! > next available position = used index + heads in flight
//!
//! at every moment that a successor can find. What changes and in which order, so that this holds:
//!
//! | step | store | killed after it, the successor finds |
//! |---|---|---|
//! | take | the head's bit | one head more, one position further; before it, the entry is simply taken again |
//! | give back | an entry behind the used index | nothing: the driver does not see it either |
//! | publish 1 | `BATCH`: used index before and behind | the index before: nothing of the batch has come back |
//! | publish 2 | the used index, in guest memory | the index behind: the batch has come back, its bits are stale |
//! | publish 3 | the bits of the batch are cleared, one by one | likewise |
//! | publish 4 | `BATCH`: none | all of it |
//!
//! The one gap is between 2 and 4: bits that are still set of heads that the driver has back. The successor sees the index
//! that `BATCH` announces, and clears the bits of the heads in the batch, which are still in the used ring between both
//! indices: no entry there is written again before the ring has gone round, and none at all before step 4. Clearing twice
//! does no harm, so a successor that is killed as well changes nothing.
//!
//! A process is killed between two instructions, and all its stores up to there arrive. So only the compiler's order counts,
//! and it is kept by fences for the compiler.
//!
//! The guest can write to its used ring and confuse its own successor: it would get a packet back twice, or never. Every
//! chain is checked anew, so nobody else is concerned.
//!
//! # Order
//! The successor takes the packets again, oldest first. The available ring tells the order of those that were among its last
//! entries; older ones have no order any more, and come before them. Whoever stops in good order therefore writes the order
//! down: [`super::SocketTx::hand_over`] puts the heads into the used ring, behind the used index, where there is
//! room for exactly those that are in flight, and says so in `ORDER`, until the next one gives a packet back.

use std::sync::Arc;
use std::sync::atomic::{Ordering, compiler_fence};

use super::MAX_SIZE;
use crate::counters::SharedWords;
use crate::device::split::SplitRing;

/// Words that it takes.
pub const WORDS: usize = 20;

/// First of a bit for each head.
const BITS: usize = 0;
/// [`VALID`], used index behind the batch that is being published, used index before it.
const BATCH: usize = BITS + MAX_SIZE as usize / 64;
/// [`VALID`], heads in flight, used index: the used ring has their order.
const ORDER: usize = BATCH + 1;
/// 1 if the other words mean something: a ring has been started, and they were not cleared since.
const LIVE: usize = ORDER + 1;

const _: () = assert!(LIVE < WORDS);

/// Bit that tells a word that was written from one that never was.
const VALID: u64 = 1 << 32;

fn pair(high: u16, low: u16) -> u64 {
    VALID | u64::from(high) << 16 | u64::from(low)
}

fn unpair(word: u64) -> Option<(u16, u16)> {
    (word & VALID != 0).then_some(((word >> 16) as u16, word as u16))
}

/// Where a transmit queue writes down what it has taken: [`WORDS`] words of a file. A process that is killed at any
/// moment leaves it so that the next one gives each head back exactly once.
#[derive(Debug, Clone)]
pub struct InFlight {
    words: Arc<SharedWords>,
    base: usize,
}

impl InFlight {
    /// The words from `base` on.
    ///
    /// # Panics
    /// If there are fewer than [`WORDS`].
    pub fn new(words: &Arc<SharedWords>, base: usize) -> Self {
        let end = base.checked_add(WORDS).expect("an index of a word");
        assert!(end <= words.words().len(), "words {base}..{end} of {}", words.words().len());
        Self { words: Arc::clone(words), base }
    }

    /// Forgets everything: the device was reset, or is another one. Whoever starts a queue anywhere but where the last one
    /// stopped does so by itself.
    pub fn clear(&self) {
        // First, so that half of the words are never taken for all of them.
        self.store(LIVE, 0);
        for word in BITS..LIVE {
            self.store(word, 0);
        }
    }

    #[inline]
    fn load(&self, word: usize) -> u64 {
        self.words.words()[self.base + word].load(Ordering::Relaxed)
    }

    /// Stores a word, after everything that the program stores before it and before everything that it stores behind.
    #[inline]
    fn store(&self, word: usize, value: u64) {
        #[cfg(test)]
        super::recovery_tests::moment();
        compiler_fence(Ordering::SeqCst);
        self.words.words()[self.base + word].store(value, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        #[cfg(test)]
        super::recovery_tests::moment();
    }

    /// A head is taken.
    #[inline]
    pub(super) fn add(&self, head: u16) {
        let (word, bit) = place(head);
        self.store(word, self.load(word) | bit);
    }

    #[inline]
    fn remove(&self, head: u16) {
        let (word, bit) = place(head);
        self.store(word, self.load(word) & !bit);
    }

    /// The used index is going to move from `old` to `new`.
    #[inline]
    pub(super) fn begin_batch(&self, old: u16, new: u16) {
        self.store(BATCH, pair(new, old));
    }

    /// It has moved; these heads were returned by it.
    #[inline]
    pub(super) fn end_batch(&self, heads: &[u16]) {
        for &head in heads {
            self.remove(head);
        }
        self.store(BATCH, 0);
    }

    /// Writes the order down of all heads in flight, the oldest first. Nothing is waiting to be published.
    pub(super) fn write_order(&self, ring: &SplitRing, heads: impl Iterator<Item = u16>) {
        let (used, mut count) = (ring.position(), 0);
        for head in heads {
            ring.write_used_head(used.wrapping_add(count), head);
            count += 1;
        }
        self.store(ORDER, pair(count, used));
    }

    /// The order is going to be written over.
    #[cold]
    pub(super) fn forget_order(&self) {
        self.store(ORDER, 0);
    }

    /// Begins a ring's life with nothing in flight.
    pub(super) fn start(&self) {
        self.clear();
        self.store(LIVE, 1);
    }

    /// What the last user of this ring had in flight, the oldest first. `used`: the used index found.
    pub(super) fn recover(&self, ring: &SplitRing, used: u16) -> Vec<u16> {
        if self.load(LIVE) == 0 {
            return Vec::new();
        }
        if let Some((new, old)) = unpair(self.load(BATCH))
            && new == used
        {
            for entry in 0..new.wrapping_sub(old).min(ring.size()) {
                let head = ring.used_head(old.wrapping_add(entry));
                if head < MAX_SIZE {
                    self.remove(head);
                }
            }
        }
        self.store(BATCH, 0);
        let heads = (0..MAX_SIZE).filter(|&head| self.contains(head));
        let (heads, others): (Vec<u16>, Vec<u16>) = heads.partition(|&head| head < ring.size());
        // Heads that the ring does not have are another ring's.
        for head in others {
            self.remove(head);
        }
        self.written_order(ring, used, &heads).unwrap_or_else(|| order_of_availability(ring, used, &heads))
    }

    #[inline]
    pub(super) fn contains(&self, head: u16) -> bool {
        let (word, bit) = place(head);
        self.load(word) & bit != 0
    }

    /// The order that [`Self::write_order`] wrote, if it was of these heads.
    fn written_order(&self, ring: &SplitRing, used: u16, heads: &[u16]) -> Option<Vec<u16>> {
        let (count, at) = unpair(self.load(ORDER))?;
        if (usize::from(count), at) != (heads.len(), used) {
            return None;
        }
        let order: Vec<u16> = (0..count).map(|entry| ring.used_head(used.wrapping_add(entry))).collect();
        let mut sorted = order.clone();
        sorted.sort_unstable();
        (sorted == heads).then_some(order)
    }
}

/// Word and bit of a head.
#[inline]
fn place(head: u16) -> (usize, u64) {
    (BITS + usize::from(head) / 64, 1 << (head % 64))
}

/// Heads by the entries of the available ring that they were last in. Those that are in none are older than the others.
fn order_of_availability(ring: &SplitRing, used: u16, heads: &[u16]) -> Vec<u16> {
    let next = used.wrapping_add(heads.len() as u16);
    // The driver has written over entries for those that it has made available since. More than the ring has would be a
    // fault, which the first look at the index finds.
    let written = ring.avail_index().wrapping_sub(next);
    let readable = ring.size().saturating_sub(written);
    // How many entries ago; the ring's size for those that are in none.
    let mut ages = vec![ring.size(); ring.size().into()];
    for age in (0..readable).rev() {
        if let Some(known) = ages.get_mut(usize::from(ring.avail_head(next.wrapping_sub(age + 1)))) {
            *known = age;
        }
    }
    let mut ordered = heads.to_vec();
    ordered.sort_by_key(|&head| std::cmp::Reverse(ages[usize::from(head)]));
    ordered
}
