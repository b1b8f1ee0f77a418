//! The bounded queue in which frames to a guest wait for their rate.
//!
//! The queue is first-in, first-out, and a frame that finds it full is lost. Its memory is
//! allocated once, when the port is shaped; pages that no frame has used are not touched.

use std::collections::VecDeque;

use taut_virtq::header::NetHeader;

/// Largest number of frames (ESX: `Net.NetShaperQueueSizeMax`).
pub const MAX_FRAMES: usize = 500;
/// Room in bytes: for sixteen of the longest frames, or [`MAX_FRAMES`] frames of 1518 bytes.
pub const MAX_BYTES: usize = 1 << 20;

/// Waiting frames.
#[derive(Debug)]
pub struct Queue {
    entries: VecDeque<Entry>,
    /// A circular buffer in which each frame is contiguous.
    space: Box<[u8]>,
    /// Offset behind the last frame.
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
    /// Tells whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds a frame of up to `len` bytes. `fill` writes it and returns its true length. Returns
    /// `false` if there is no room.
    pub fn push(&mut self, header: NetHeader, len: usize, fill: impl FnOnce(&mut [u8]) -> usize) -> bool {
        let Some(start) = self.room(len) else { return false };
        let len = fill(&mut self.space[start..start + len]).min(len);
        self.entries.push_back(Entry { header, start, len });
        self.end = start + len;
        true
    }

    /// Offset of `len` contiguous free bytes.
    fn room(&self, len: usize) -> Option<usize> {
        if self.entries.len() == MAX_FRAMES {
            return None;
        }
        let Some(first) = self.entries.front() else { return (len <= self.space.len()).then_some(0) };
        if self.end > first.start {
            // The used bytes are contiguous: use the space behind them, or else before them.
            let behind = self.space.len() - self.end;
            if len <= behind { Some(self.end) } else { (len < first.start).then_some(0) }
        } else {
            // `end == start` is reserved for the empty queue.
            (len < first.start - self.end).then_some(self.end)
        }
    }

    /// The oldest frame.
    pub fn first(&self) -> Option<(&NetHeader, &[u8])> {
        let entry = self.entries.front()?;
        Some((&entry.header, &self.space[entry.start..entry.start + entry.len]))
    }

    /// Removes the oldest frame.
    pub fn pop(&mut self) {
        self.entries.pop_front();
    }

    /// Removes all frames and returns their number.
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
        fn frames_leave_the_queue_whole_and_in_order(
            steps in prop::collection::vec((any::<bool>(), prop_oneof![4 => 1..2000_usize, 1 => Just(65_549)]), 1..600),
        ) {
            let mut queue = Queue::default();
            let mut model = VecDeque::new();
            let mut mark = 0_u8;
            for (add, len) in steps {
                if add {
                    let used: usize = model.iter().map(|(_, len)| len).sum();
                    let taken = push(&mut queue, mark, len);
                    // Up to one frame's length is unusable where the buffer wraps around.
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
                    // An overlapping frame would have overwritten the mark at one end.
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
    fn the_queue_is_bounded_in_frames_and_in_bytes() {
        let mut queue = Queue::default();
        assert_eq!((0..600).filter(|_| push(&mut queue, 1, 64)).count(), MAX_FRAMES);
        queue.clear();
        assert_eq!((0..600).filter(|_| push(&mut queue, 1, 1518)).count(), MAX_FRAMES);
        queue.clear();
        assert_eq!((0..600).filter(|_| push(&mut queue, 1, 65_520)).count(), 16);
        assert!(!push(&mut queue, 1, MAX_BYTES + 1));
    }

    #[test]
    fn a_frame_that_shrinks_while_it_is_copied_is_stored_with_its_true_length() {
        let mut queue = Queue::default();
        assert!(queue.push(NetHeader::default(), 100, |_| 7));
        assert!(push(&mut queue, 9, 50));
        assert_eq!(queue.first().unwrap().1.len(), 7);
        queue.pop();
        assert_eq!(queue.first().unwrap().1, [9; 50]);
    }
}
