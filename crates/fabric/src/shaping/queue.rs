//! The bounded queue in which frames wait for their rate on the way to a guest.
//!
//! The first come goes first, and one that finds the queue full is lost. Its memory is taken when a port is shaped and
//! never again; pages that no frame has been in are not touched.

use std::collections::VecDeque;

use taut_virtq::header::NetHeader;

/// Most frames: ESX's `Net.NetShaperQueueSizeMax`.
pub const MAX_FRAMES: usize = 500;
/// Room for their bytes: sixteen of the longest frames, or [`MAX_FRAMES`] of 1518 bytes.
pub const MAX_BYTES: usize = 1 << 20;

/// Frames that wait.
#[derive(Debug)]
pub struct Queue {
    entries: VecDeque<Entry>,
    /// Used in a circle; a frame lies in one piece.
    space: Box<[u8]>,
    /// Behind the last frame.
    end: usize,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    header: NetHeader,
    start: usize,
    len: usize,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            entries: VecDeque::with_capacity(MAX_FRAMES),
            space: vec![0; MAX_BYTES].into_boxed_slice(),
            end: 0,
        }
    }
}

impl Queue {
    /// Is nothing in it?
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds a frame of up to `len` bytes, which `fill` writes and tells the true length of; `false` if there is no room.
    pub fn push(&mut self, header: NetHeader, len: usize, fill: impl FnOnce(&mut [u8]) -> usize) -> bool {
        let Some(start) = self.room(len) else { return false };
        let len = fill(&mut self.space[start..start + len]).min(len);
        self.entries.push_back(Entry { header, start, len });
        self.end = start + len;
        true
    }

    /// Where `len` bytes in one piece are free.
    fn room(&self, len: usize) -> Option<usize> {
        if self.entries.len() == MAX_FRAMES {
            return None;
        }
        let Some(first) = self.entries.front() else { return (len <= self.space.len()).then_some(0) };
        if self.end > first.start {
            // What is used is in one piece: behind it, or else before it.
            let behind = self.space.len() - self.end;
            if len <= behind { Some(self.end) } else { (len < first.start).then_some(0) }
        } else {
            // The end may meet the start only when the queue is empty.
            (len < first.start - self.end).then_some(self.end)
        }
    }

    /// The frame that has waited longest.
    pub fn first(&self) -> Option<(&NetHeader, &[u8])> {
        let entry = self.entries.front()?;
        Some((&entry.header, &self.space[entry.start..entry.start + entry.len]))
    }

    /// Removes it.
    pub fn pop(&mut self) {
        self.entries.pop_front();
    }

    /// Removes all frames and tells how many there were.
    pub fn clear(&mut self) -> usize {
        self.entries.drain(..).count()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn push(queue: &mut Queue, mark: u8, len: usize) -> bool {
        queue.push(NetHeader { flags: mark, ..NetHeader::default() }, len, |space| {
            assert_eq!(space.len(), len);
            space.fill(mark);
            len
        })
    }

    proptest! {
        #[test]
        fn what_goes_in_comes_out_in_order_and_whole(
            steps in prop::collection::vec((any::<bool>(), prop_oneof![4 => 1..2000_usize, 1 => Just(65_549)]), 1..600),
        ) {
            let mut queue = Queue::default();
            let mut model = VecDeque::new();
            let mut mark = 0_u8;
            for (add, len) in steps {
                if add {
                    let used: usize = model.iter().map(|(_, len)| len).sum();
                    let taken = push(&mut queue, mark, len);
                    // One frame's length may be lost where the circle closes.
                    prop_assert!(taken || model.len() == MAX_FRAMES || used + 2 * 65_549 > MAX_BYTES);
                    prop_assert!(!taken || (model.len() < MAX_FRAMES && used + len <= MAX_BYTES));
                    if taken {
                        model.push_back((mark, len));
                    }
                    mark = mark.wrapping_add(1);
                } else {
                    queue.pop();
                    model.pop_front();
                }
                prop_assert_eq!(queue.is_empty(), model.is_empty());
                let first = queue.first().map(|(header, bytes)| {
                    // Another frame that overlaps with this one has left its mark at one of its ends.
                    let whole = bytes[0] == header.flags && bytes[bytes.len() - 1] == header.flags;
                    assert!(whole, "overwritten");
                    (header.flags, bytes.len())
                });
                prop_assert_eq!(first, model.front().copied());
            }
            prop_assert_eq!(queue.clear(), model.len());
            prop_assert!(queue.is_empty());
        }
    }

    #[test]
    fn it_is_bounded_in_frames_and_in_bytes() {
        let mut queue = Queue::default();
        assert_eq!((0..600).filter(|_| push(&mut queue, 1, 64)).count(), MAX_FRAMES);
        queue.clear();
        assert_eq!((0..600).filter(|_| push(&mut queue, 1, 1518)).count(), MAX_FRAMES);
        queue.clear();
        assert_eq!((0..600).filter(|_| push(&mut queue, 1, 65_520)).count(), 16);
        assert!(!push(&mut queue, 1, MAX_BYTES + 1));
    }

    #[test]
    fn a_guest_that_takes_its_frame_back_leaves_a_shorter_one() {
        let mut queue = Queue::default();
        assert!(queue.push(NetHeader::default(), 100, |_| 7));
        assert!(push(&mut queue, 9, 50));
        assert_eq!(queue.first().unwrap().1.len(), 7);
        queue.pop();
        assert_eq!(queue.first().unwrap().1, [9; 50]);
    }
}
