//! Finds the first of many nodes by their keys: a ring of buckets whose occupied
//! ones are marked in words of bits (as in Eiffel, NSDI 2019).
//!
//! A bucket holds a range of keys. Nodes in the same bucket leave in the order in which they came,
//! so the order is exact only to the width of a bucket.
//!
//! The ring begins at a key that its owner moves on ([`Calendar::advance`]): now, or the place that
//! was served last. Keys before it count as this one. Keys beyond the end of the ring wait in its
//! last bucket, and find their own one when the ring has come there. But for those, and for a ring
//! that has gone round once, every operation takes a constant time.

use std::fmt;

/// Number of buckets.
const BUCKETS: usize = 4096;
/// Bits of a word.
const BITS: usize = u64::BITS as usize;
/// Number of words with a bit for each bucket. One more word has a bit for each of them.
const WORDS: usize = BUCKETS / BITS;
const _: () = assert!(WORDS <= BITS);
/// Marks the end of a list.
const NONE: u32 = u32::MAX;

/// Nodes by key. A node is known by its number, and is in the calendar once at most.
pub(super) struct Calendar {
    /// A bucket holds 2 to this power keys.
    width: u32,
    /// Number of the first bucket, counted from key 0.
    start: u64,
    /// First and last node of each bucket.
    lists: Box<[(u32, u32)]>,
    words: [u64; WORDS],
    /// A bit for each word that is not zero.
    summary: u64,
    /// By node.
    entries: Vec<Entry>,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    key: u64,
    /// Place of the bucket in the ring, or [`NONE`] while the node is not in the calendar.
    bucket: u32,
    before: u32,
    after: u32,
}

impl Entry {
    const OUT: Self = Self { key: 0, bucket: NONE, before: NONE, after: NONE };
}

impl Calendar {
    /// Returns an empty calendar whose buckets hold 2 to the power of `width` keys.
    pub(super) fn new(width: u32) -> Self {
        Self {
            width,
            start: 0,
            lists: vec![(NONE, NONE); BUCKETS].into_boxed_slice(),
            words: [0; WORDS],
            summary: 0,
            entries: Vec::new(),
        }
    }

    /// Returns whether the calendar has no node.
    pub(super) fn is_empty(&self) -> bool {
        self.summary == 0
    }

    /// Returns whether the calendar has this node.
    #[cfg(test)]
    pub(super) fn contains(&self, node: u32) -> bool {
        self.entries.get(node as usize).is_some_and(|entry| entry.bucket != NONE)
    }

    /// Puts a node in its place, whether or not it is in the calendar.
    pub(super) fn put(&mut self, node: u32, key: u64) {
        self.remove(node);
        if self.entries.len() <= node as usize {
            self.entries.resize(node as usize + 1, Entry::OUT);
        }
        let place = (key >> self.width).clamp(self.start, self.end()) as usize % BUCKETS;
        let (first, last) = &mut self.lists[place];
        let before = *last;
        self.entries[node as usize] = Entry { key, bucket: place as u32, before, after: NONE };
        *last = node;
        match before {
            NONE => *first = node,
            _ => self.entries[before as usize].after = node,
        }
        self.words[place / BITS] |= 1 << (place % BITS);
        self.summary |= 1 << (place / BITS);
    }

    /// Takes a node out, if it is in the calendar.
    pub(super) fn remove(&mut self, node: u32) {
        let Some(entry) = self.entries.get_mut(node as usize) else { return };
        let Entry { bucket, before, after, .. } = std::mem::replace(entry, Entry::OUT);
        if bucket == NONE {
            return;
        }
        let place = bucket as usize;
        match before {
            NONE => self.lists[place].0 = after,
            _ => self.entries[before as usize].after = after,
        }
        match after {
            NONE => self.lists[place].1 = before,
            _ => self.entries[after as usize].before = before,
        }
        if self.lists[place].0 == NONE {
            let word = &mut self.words[place / BITS];
            *word &= !(1 << (place % BITS));
            if *word == 0 {
                self.summary &= !(1 << (place / BITS));
            }
        }
    }

    /// Moves the beginning of the ring on to a key, but not past a node.
    pub(super) fn advance(&mut self, key: u64) {
        let to = key >> self.width;
        while self.start < to {
            let Some((_, key, number)) = self.head() else {
                self.start = to;
                return;
            };
            let is_far = key >> self.width > number;
            if is_far && to > self.end() {
                self.rebuild(to);
                return;
            }
            self.start = to.min(number);
            if !is_far {
                return;
            }
        }
    }

    /// Returns the first node and its key. Of nodes beyond the end of the ring, it may be any.
    pub(super) fn first(&mut self) -> Option<(u32, u64)> {
        self.head().map(|(node, key, _)| (node, key))
    }

    /// Returns a key at which to look again, not after the first node's.
    pub(super) fn next(&mut self) -> Option<u64> {
        let (_, key, number) = self.head()?;
        Some(if key >> self.width <= number { key } else { number << self.width })
    }

    /// Returns the first node, its key, and the number of its bucket.
    fn head(&mut self) -> Option<(u32, u64, u64)> {
        loop {
            let place = self.first_bucket()?;
            let ahead = (place + BUCKETS - self.start as usize % BUCKETS) % BUCKETS;
            let number = self.start + ahead as u64;
            let node = self.lists[place].0;
            let key = self.entries[node as usize].key;
            if key >> self.width <= number || number == self.end() {
                return Some((node, key, number));
            }
            // The node came into this bucket when the ring ended there.
            self.put(node, key);
        }
    }

    /// Number of the last bucket.
    fn end(&self) -> u64 {
        self.start + (BUCKETS as u64 - 1)
    }

    /// Begins anew where all nodes wait in the last bucket, and the ring has gone round.
    #[cold]
    fn rebuild(&mut self, to: u64) {
        let nodes = (0..).zip(&self.entries).filter(|(_, entry)| entry.bucket != NONE);
        let mut all: Vec<(u64, u32)> = nodes.map(|(node, entry)| (entry.key, node)).collect();
        all.sort_unstable();
        for (_, node) in &all {
            self.remove(*node);
        }
        self.start = all.first().map_or(to, |(key, _)| to.min(key >> self.width));
        for (key, node) in all {
            self.put(node, key);
        }
    }

    /// Returns the place of the first bucket with a node.
    fn first_bucket(&self) -> Option<usize> {
        let start = self.start as usize % BUCKETS;
        let (word, bit) = (start / BITS, start % BITS);
        let rest = self.words[word] >> bit;
        if rest != 0 {
            return Some(start + rest.trailing_zeros() as usize);
        }
        // The words after this one, then the others from the head of the ring. The word itself
        // comes last: of it, only the bits before `bit` are set.
        let later = if word + 1 < BITS { self.summary >> (word + 1) << (word + 1) } else { 0 };
        let found = if later != 0 { later } else { self.summary };
        (found != 0).then(|| {
            let word = found.trailing_zeros() as usize;
            word * BITS + self.words[word].trailing_zeros() as usize
        })
    }
}

impl fmt::Debug for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes = self.entries.iter().enumerate().filter(|(_, entry)| entry.bucket != NONE);
        f.debug_map().entries(nodes.map(|(node, entry)| (node, entry.key))).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nodes_leave_in_the_order_of_buckets_and_then_of_arrival() {
        let mut calendar = Calendar::new(4);
        for (node, key) in [(0, 40), (1, 18), (2, 16), (3, 5), (4, 1 << 30)] {
            calendar.put(node, key);
        }
        let mut order = Vec::new();
        while let Some((node, _)) = calendar.first() {
            order.push(node);
            calendar.remove(node);
        }
        assert_eq!(order, [3, 1, 2, 0, 4]);
        assert!(calendar.is_empty() && !calendar.contains(4));
    }

    #[test]
    fn a_far_node_is_asked_for_again_before_its_time() {
        let mut calendar = Calendar::new(0);
        calendar.put(0, 1_000_000);
        calendar.put(1, 500_000);
        assert_eq!(calendar.next(), Some(BUCKETS as u64 - 1));
        calendar.advance(499_000);
        assert_eq!((calendar.first(), calendar.next()), (Some((1, 500_000)), Some(500_000)));
    }

    #[test]
    fn a_near_node_comes_before_a_far_one_that_was_alone() {
        let mut calendar = Calendar::new(0);
        calendar.put(0, 279);
        assert_eq!(calendar.first(), Some((0, 279)));
        calendar.put(1, 5);
        assert_eq!(calendar.first(), Some((1, 5)));
    }

    #[derive(Debug, Clone)]
    enum Act {
        /// Puts a node so far from the key to which the calendar was advanced, or before it.
        Put(u32, u64, bool),
        Remove(u32),
        TakeFirst,
        Advance(u64),
    }

    fn act() -> impl Strategy<Value = Act> {
        let ahead = || prop_oneof![0..500_u64, 0..100_000_u64, 0..10_000_000_u64];
        prop_oneof![
            (0..40_u32, ahead(), prop::bool::weighted(0.1))
                .prop_map(|(node, distance, is_before)| Act::Put(node, distance, is_before)),
            (0..40_u32).prop_map(Act::Remove),
            Just(Act::TakeFirst),
            ahead().prop_map(Act::Advance),
        ]
    }

    proptest! {
        /// Beside a map. Nodes may be overdue for as long as they like.
        #[test]
        fn the_first_key_is_first_to_the_width_of_a_bucket(
            width in 0..6_u32,
            acts in prop::collection::vec(act(), 1..400),
        ) {
            let mut calendar = Calendar::new(width);
            let mut map = BTreeMap::new();
            let mut now = 0_u64;
            for act in acts {
                match act {
                    Act::Put(node, distance, is_before) => {
                        let key = if is_before { now.saturating_sub(distance) } else { now + distance };
                        calendar.put(node, key);
                        map.insert(node, key);
                    }
                    Act::Remove(node) => {
                        calendar.remove(node);
                        map.remove(&node);
                    }
                    Act::Advance(ahead) => {
                        now += ahead;
                        calendar.advance(now);
                    }
                    Act::TakeFirst => {
                        calendar.advance(now);
                        let Some((node, key)) = calendar.first() else { continue };
                        prop_assert_eq!(map.get(&node), Some(&key));
                        let least = map.values().copied().min().unwrap_or(key) >> width;
                        let is_far = least >= calendar.end();
                        // Keys before the beginning count as the beginning.
                        let is_first = key >> width <= least.max(calendar.start);
                        prop_assert!(is_first || is_far, "{} before {}", key >> width, least);
                        prop_assert!(calendar.next().is_some_and(|next| next >> width <= least.max(calendar.start)));
                        calendar.remove(node);
                        map.remove(&node);
                    }
                }
                prop_assert_eq!(calendar.is_empty(), map.is_empty());
                for node in 0..40 {
                    prop_assert_eq!(calendar.contains(node), map.contains_key(&node));
                }
            }
        }
    }
}
