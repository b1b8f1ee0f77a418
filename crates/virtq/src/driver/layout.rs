//! Addresses of the areas of a queue.

use super::Ram;
use crate::ring::{QueueConfig, Start, split};

/// Guest addresses of the three areas of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueLayout {
    /// Number of entries.
    pub size: u16,
    /// Descriptor table, or packed ring.
    pub desc: u64,
    /// Available ring, or the driver's event suppression.
    pub avail: u64,
    /// Used ring, or the device's event suppression.
    pub used: u64,
}

impl QueueLayout {
    /// Allocates the areas of a queue of `size` entries; `None` when the memory is used up. Each area has
    /// pages of its own, because processors fetch neighbouring lines together, and is large enough for
    /// either format.
    pub fn allocate(ram: &mut Ram, size: u16) -> Option<Self> {
        let mut place = |len: usize| ram.allocate(len as u64, 4096);
        let [desc, avail, used] = split::area_lengths(size, true).map(&mut place);
        Some(Self { size, desc: desc?, avail: avail?, used: used? })
    }

    /// The configuration of the same queue for its device end.
    pub fn config(&self, features: u64, start: Start) -> QueueConfig {
        let Self { size, desc, avail, used } = *self;
        QueueConfig { size, desc, avail, used, features, start, log: None }
    }

    /// The addresses in the order `[desc, avail, used]`.
    pub(super) fn addresses(&self) -> [u64; 3] {
        [self.desc, self.avail, self.used]
    }
}
