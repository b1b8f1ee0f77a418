//! Indices of a device's virtqueues and of its queue pairs.
//!
//! A device with `n` pairs has `2 n` queues. Pair `i` consists of the receive queue `2 i` and the
//! transmit queue `2 i + 1` (virtio 1.2, 5.1.2 and 5.10.2).

use std::fmt;

/// Direction of a virtqueue, as the guest sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the fabric to the guest.
    Receive,
    /// From the guest to the fabric.
    Transmit,
}

/// Index of a virtqueue in its device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueIdx(pub u16);

impl QueueIdx {
    /// The receive queue of the first pair.
    pub const FIRST_RECEIVE: Self = Self::receive(PairIdx::FIRST);
    /// The transmit queue of the first pair.
    pub const FIRST_TRANSMIT: Self = Self::transmit(PairIdx::FIRST);

    /// The receive queue of a pair.
    #[inline]
    pub const fn receive(pair: PairIdx) -> Self {
        Self(2 * pair.0 as u16)
    }

    /// The transmit queue of a pair.
    #[inline]
    pub const fn transmit(pair: PairIdx) -> Self {
        Self(2 * pair.0 as u16 + 1)
    }

    /// All queues of a device that has `count` of them.
    pub fn all(count: usize) -> impl Iterator<Item = Self> {
        (0..count as u16).map(Self)
    }

    /// The direction in which the queue carries data.
    #[inline]
    pub const fn direction(self) -> Direction {
        if self.0.is_multiple_of(2) { Direction::Receive } else { Direction::Transmit }
    }

    /// The pair that the queue belongs to.
    #[inline]
    pub const fn pair(self) -> PairIdx {
        PairIdx(self.0 as u32 / 2)
    }

    /// Position in an array with one element for each queue.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for QueueIdx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Index of a queue pair in its port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PairIdx(pub u32);

impl PairIdx {
    /// The only pair of a port with one pair, and the first of any other.
    pub const FIRST: Self = Self(0);

    /// All pairs of a port that has `count` of them.
    pub fn all(count: usize) -> impl Iterator<Item = Self> {
        (0..count as u32).map(Self)
    }

    /// Position in an array with one element for each pair.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_consists_of_an_even_receive_queue_and_the_odd_transmit_queue_behind_it() {
        let pair = PairIdx(3);
        let (receive, transmit) = (QueueIdx::receive(pair), QueueIdx::transmit(pair));
        assert_eq!((receive, transmit), (QueueIdx(6), QueueIdx(7)));
        assert_eq!((receive.pair(), transmit.pair()), (pair, pair));
        assert_eq!(receive.direction(), Direction::Receive);
        assert_eq!(transmit.direction(), Direction::Transmit);
    }
}
