//! Log of the packets of a transmit queue that are taken, kept outside guest memory so that another
//! process can go on after a crash.
//!
//! The used index of a ring whose chains are returned in order tells its position. For a ring whose
//! chains are returned out of order, a successor needs three things: the heads *in flight* (taken,
//! and not yet returned in the driver's eyes), the used index, and the position of the next
//! available entry. The used index is in guest memory. The heads are in this log, one bit each.
//! Each entry that was passed is either used or in flight, so
//!
//! > next available position = used index + number of heads in flight
//!
//! holds at every moment that a successor can find. The order of the stores ensures that:
//!
//! | step | store | what a successor finds after a kill behind this store |
//! |---|---|---|
//! | take | the head's bit | one more head, one position further (before it: taken again) |
//! | give back | an entry behind the used index | no change: the driver does not see it either |
//! | publish 1 | `BATCH`: used index before, behind | the index before: the batch is in flight |
//! | publish 2 | the used index, in guest memory | the index behind: the batch's bits are stale |
//! | publish 3 | clears the bits of the batch, one by one | likewise |
//! | publish 4 | `BATCH`: none | all of it |
//!
//! Between steps 2 and 4, bits are still set for heads that the driver has back. The successor sees
//! the index that `BATCH` announces and clears the bits of the heads in the batch. These heads are
//! still in the used ring between both indices: no entry there is written again before the ring has
//! wrapped around, and none at all before step 4. Clearing twice does no harm, so a successor may
//! be killed as well.
//!
//! A process is killed between two instructions, and all its stores up to there take effect. Only
//! the compiler's order matters, therefore; compiler fences keep it.
//!
//! A guest that writes to its used ring can confuse its own successor: it gets a packet back twice,
//! or never. Every chain is checked anew, so no other guest is affected.
//!
//! # Order
//! The successor takes the packets again, oldest first. The available ring tells the order of those
//! among its last entries; older ones have no known order and come before them. A process that
//! stops in good order therefore logs the order: [`super::SocketTx::hand_over`] writes the heads
//! into the used ring behind the used index, where there is room for exactly those in flight, and
//! says so in `ORDER` until the next packet is given back.

use std::sync::Arc;
use std::sync::atomic::{Ordering, compiler_fence};

use super::MAX_SIZE;
use crate::counters::SharedWords;
use crate::device::split::SplitRing;

/// Number of words that the log of one queue takes.
pub const WORDS: usize = 20;

/// First of the words with one bit for each head.
const BITS: usize = 0;
/// Word with [`VALID`], the used index behind the batch that is being published, and that before
/// it.
const BATCH: usize = BITS + MAX_SIZE as usize / 64;
/// Word with [`VALID`], the number of heads in flight and the used index: the used ring has their
/// order.
const ORDER: usize = BATCH + 1;
/// Word that is 1 if the other words are valid: a ring was started, and they were not cleared
/// since.
const LIVE: usize = ORDER + 1;

const _: () = assert!(LIVE < WORDS);

/// Bit that distinguishes a word that was written from one that never was.
const VALID: u64 = 1 << 32;

fn pair(high: u16, low: u16) -> u64 {
    VALID | u64::from(high) << 16 | u64::from(low)
}

fn unpair(word: u64) -> Option<(u16, u16)> {
    (word & VALID != 0).then_some(((word >> 16) as u16, word as u16))
}

/// Log of the heads that a transmit queue has taken: [`WORDS`] words of a file. A process that is
/// killed at any moment leaves the log so that the next process gives each head back exactly once.
#[derive(Debug, Clone)]
pub struct InFlight {
    words: Arc<SharedWords>,
    base: usize,
}

impl InFlight {
    /// Uses the words from `base` on.
    ///
    /// # Panics
    /// If there are fewer than [`WORDS`].
    pub fn new(words: &Arc<SharedWords>, base: usize) -> Self {
        let end = base.checked_add(WORDS).expect("an index of a word");
        assert!(end <= words.words().len(), "words {base}..{end} of {}", words.words().len());
        Self { words: Arc::clone(words), base }
    }

    /// Clears the log, because the device was reset or is another one. [`super::SocketTx::new`]
    /// does so itself if it starts anywhere but where the last queue stopped.
    pub fn clear(&self) {
        // First, so that a half-cleared log is never taken for a valid one.
        self.store(LIVE, 0);
        for word in BITS..LIVE {
            self.store(word, 0);
        }
    }

    #[inline]
    fn load(&self, word: usize) -> u64 {
        self.words.words()[self.base + word].load(Ordering::Relaxed)
    }

    /// Stores a word, ordered after all earlier and before all later stores of the program.
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

    /// Logs that a head is taken.
    #[inline]
    pub(super) fn add(&self, head: u16) {
        let (word, bit) = place(head);
        self.store(word, self.load(word) | bit);
    }

    /// Logs that a head is not in flight.
    #[inline]
    fn remove(&self, head: u16) {
        let (word, bit) = place(head);
        self.store(word, self.load(word) & !bit);
    }

    /// Logs that the used index is about to move from `old` to `new`.
    #[inline]
    pub(super) fn begin_batch(&self, old: u16, new: u16) {
        self.store(BATCH, pair(new, old));
    }

    /// Logs that the used index has moved and returned these heads.
    #[inline]
    pub(super) fn end_batch(&self, heads: &[u16]) {
        for &head in heads {
            self.remove(head);
        }
        self.store(BATCH, 0);
    }

    /// Logs the order of all heads in flight, given the oldest first. Requires that everything is
    /// published.
    pub(super) fn write_order(&self, ring: &SplitRing, heads: impl Iterator<Item = u16>) {
        let (used, mut count) = (ring.position(), 0);
        for head in heads {
            ring.write_used_head(used.wrapping_add(count), head);
            count += 1;
        }
        self.store(ORDER, pair(count, used));
    }

    /// Logs that the order is about to be overwritten.
    #[cold]
    pub(super) fn forget_order(&self) {
        self.store(ORDER, 0);
    }

    /// Starts the log of a ring with nothing in flight.
    pub(super) fn start(&self) {
        self.clear();
        self.store(LIVE, 1);
    }

    /// The heads that the last user of this ring had in flight, the oldest first. `used`: the used
    /// index found in guest memory.
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
        // Heads outside this ring belong to another ring.
        for head in others {
            self.remove(head);
        }
        self.written_order(ring, used, &heads).unwrap_or_else(|| order_of_availability(ring, used, &heads))
    }

    /// Tells whether a head is in flight.
    #[inline]
    pub(super) fn contains(&self, head: u16) -> bool {
        let (word, bit) = place(head);
        self.load(word) & bit != 0
    }

    /// The order that [`Self::write_order`] logged, if it was that of these heads.
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

/// The word and the bit of a head.
#[inline]
fn place(head: u16) -> (usize, u64) {
    (BITS + usize::from(head) / 64, 1 << (head % 64))
}

/// Orders heads by their last entry in the available ring. Heads without an entry are older than
/// the others.
fn order_of_availability(ring: &SplitRing, used: u16, heads: &[u16]) -> Vec<u16> {
    let next = used.wrapping_add(heads.len() as u16);
    // The driver has overwritten as many entries as it has made available since. More than the ring
    // has would be a fault, which the first look at the index finds.
    let written = ring.avail_index().wrapping_sub(next);
    let readable = ring.size().saturating_sub(written);
    // Age of each head in entries; the size of the ring for heads without an entry.
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
