//! Addresses of the areas of a queue.

use std::sync::Arc;

use super::Ram;
use crate::fault::QueueError;
use crate::memory::GuestMemory;
use crate::ring::{QueueConfig, Start, packed, split};

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
    /// Allocates the areas of a queue of `size` entries; `None` when the memory is used up. Each
    /// area has pages of its own, because processors fetch neighbouring lines together, and is
    /// large enough for either format.
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

    /// Maps the areas of a split ring.
    pub(super) fn split(&self, memory: &Arc<GuestMemory>, features: u64) -> Result<split::Areas, QueueError> {
        split::Areas::new(memory, self.size, [self.desc, self.avail, self.used], features)
    }

    /// Maps the areas of a packed ring.
    pub(super) fn packed(
        &self,
        memory: &Arc<GuestMemory>,
        features: u64,
    ) -> Result<packed::Areas, QueueError> {
        packed::Areas::new(memory, self.size, [self.desc, self.avail, self.used], features)
    }
}
