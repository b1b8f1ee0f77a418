//! Where a queue lies.

use super::Ram;
use crate::device::{QueueConfig, Start};
use crate::split;

/// Where the three areas of a queue lie: guest addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueLayout {
    /// Entries.
    pub size: u16,
    /// Descriptor table, or packed ring.
    pub desc: u64,
    /// Available ring, or the driver's event suppression.
    pub avail: u64,
    /// Used ring, or the device's event suppression.
    pub used: u64,
}

impl QueueLayout {
    /// Places a queue of `size` entries, each area on pages of its own and large enough for either format: processors
    /// fetch lines beside each other together. `None` when the memory is used up.
    pub fn allocate(ram: &mut Ram, size: u16) -> Option<Self> {
        let mut place = |len: usize| ram.allocate(len as u64, 4096);
        let [desc, avail, used] = split::area_lengths(size, true).map(&mut place);
        Some(Self { size, desc: desc?, avail: avail?, used: used? })
    }

    /// The same queue as the device end is told of it.
    pub fn config(&self, features: u64, start: Start) -> QueueConfig {
        let Self { size, desc, avail, used } = *self;
        QueueConfig { size, desc, avail, used, features, start, log: None }
    }
}
