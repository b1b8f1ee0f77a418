//! The receive buffer of a connection: bytes that no program has read yet.

/// A ring of bytes.
#[derive(Debug)]
pub(super) struct Bytes {
    ring: Box<[u8]>,
    start: usize,
    len: usize,
    /// The reader only counts: bytes that are put in are not written.
    counted_only: bool,
}

impl Bytes {
    /// Creates a buffer for `capacity` bytes.
    pub(super) fn new(capacity: usize) -> Self {
        Self { ring: vec![0; capacity].into_boxed_slice(), start: 0, len: 0, counted_only: false }
    }

    /// From now on, bytes that are put in are not written, because the reader only counts them.
    pub(super) fn count_only(&mut self) {
        self.counted_only = true;
    }

    /// Returns the number of bytes in it.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the number of bytes that still fit.
    pub(super) fn room(&self) -> usize {
        self.ring.len() - self.len
    }

    /// Appends `len` bytes, for which there must be room. `fill` gets the one or two pieces to
    /// write, in order.
    pub(super) fn put(&mut self, len: usize, mut fill: impl FnMut(&mut [u8])) {
        assert!(len <= self.room(), "{len} bytes do not fit");
        let capacity = self.ring.len();
        let mut at = self.start + self.len;
        if at >= capacity {
            at -= capacity;
        }
        let first = len.min(capacity - at);
        if !self.counted_only {
            fill(&mut self.ring[at..at + first]);
            if first < len {
                fill(&mut self.ring[..len - first]);
            }
        }
        self.len += len;
    }

    /// Removes the first `len` bytes, or all if there are fewer. `take` gets the pieces, in order.
    pub(super) fn take(&mut self, len: usize, mut take: impl FnMut(&[u8])) -> usize {
        let len = len.min(self.len);
        let first = len.min(self.ring.len() - self.start);
        take(&self.ring[self.start..self.start + first]);
        if first < len {
            take(&self.ring[..len - first]);
        }
        self.len -= len;
        self.start = if self.len == 0 { 0 } else { (self.start + len) % self.ring.len() };
        len
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn bytes_come_out_in_order(steps in prop::collection::vec((any::<bool>(), 0..50_usize), 1..200)) {
            let mut bytes = Bytes::new(37);
            let mut model = VecDeque::new();
            let mut next = 0_u8;
            for (put, len) in steps {
                if put {
                    let len = len.min(bytes.room());
                    bytes.put(len, |piece| piece.fill_with(|| { next = next.wrapping_add(1); model.push_back(next); next }));
                } else {
                    let mut taken = Vec::new();
                    let count = bytes.take(len, |piece| taken.extend_from_slice(piece));
                    let wanted: Vec<u8> = model.drain(..len.min(model.len())).collect();
                    prop_assert_eq!(count, wanted.len());
                    prop_assert_eq!(taken, wanted);
                }
                prop_assert_eq!(bytes.len(), model.len());
                prop_assert_eq!(bytes.room(), 37 - model.len());
            }
        }
    }
}
