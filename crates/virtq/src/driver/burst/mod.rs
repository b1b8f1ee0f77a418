//! The driver end for load generators: bursts of frames of one length, one descriptor each, indices once per burst, and
//! nothing else. It costs so little that a switch, and not the generator, is what a measurement finds.
//!
//! What it relies on and checks: transmitted frames come back in order. What it leaves alone: a frame's bytes, unless
//! the caller touches them.

mod packed;
mod pool;
mod split;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use thiserror::Error;

pub use pool::{BufferPool, Frame};

use super::{QueueLayout, UsedFault};
use crate::fault::QueueError;
use crate::features::RING_PACKED;
use crate::memory::GuestMemory;

/// Most frames of one burst.
pub const MAX_BURST: usize = 64;

/// What a device did wrong with a burst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum BurstFault {
    /// It returned what it was never given.
    #[error(transparent)]
    Used(#[from] UsedFault),
    /// It returned a transmitted frame before an earlier one.
    #[error(
        "the device returned entry {found} where {expected} was to come: this driver needs them in order"
    )]
    OutOfOrder {
        /// The entry that it returned.
        found: u16,
        /// The one that was next.
        expected: u16,
    },
    /// It says to have returned more than was with it.
    #[error("the device returned {returned} entries, it had {had}")]
    TooMany {
        /// How many it says.
        returned: u16,
        /// How many it had.
        had: u16,
    },
}

/// One queue of a load generator, split or packed.
#[derive(Debug)]
pub struct BurstQueue {
    ring: Layout,
}

#[derive(Debug)]
enum Layout {
    Split(split::Ring),
    Packed(packed::Ring),
}

impl BurstQueue {
    /// Sets the driver end up; the areas must be zeroed, both ends at the start. The layout follows from the features.
    pub fn new(memory: &Arc<GuestMemory>, layout: QueueLayout, features: u64) -> Result<Self, QueueError> {
        let ring = if features & RING_PACKED == 0 {
            Layout::Split(split::Ring::new(memory, layout)?)
        } else {
            Layout::Packed(packed::Ring::new(memory, layout, features)?)
        };
        Ok(Self { ring })
    }

    /// Makes up to `count` frames of `len` bytes (header included) available to the device, each changed by `touch`
    /// before; returns how many there was room for.
    #[inline]
    pub fn send(
        &mut self,
        pool: &mut BufferPool,
        count: usize,
        len: u32,
        touch: impl FnMut(Frame<'_>),
    ) -> Result<usize, BurstFault> {
        match &mut self.ring {
            Layout::Split(ring) => ring.send(pool, count, len, touch),
            Layout::Packed(ring) => ring.send(pool, count, len, touch),
        }
    }

    /// Frames that were sent and have not come back, as far as is known.
    pub fn in_flight(&self) -> usize {
        match &self.ring {
            Layout::Split(ring) => ring.in_flight(),
            Layout::Packed(ring) => ring.in_flight(),
        }
    }

    /// Gives the device empty buffers until the ring is full. Once, before the first [`Self::receive`].
    pub fn fill(&mut self, pool: &mut BufferPool) {
        match &mut self.ring {
            Layout::Split(ring) => ring.fill(pool),
            Layout::Packed(ring) => ring.fill(pool),
        }
    }

    /// Takes up to `most` (at most [`MAX_BURST`]) received frames, shows each with the length that the device told, and
    /// gives the device other buffers for them. Returns how many. `look` says that `see` is going to look into frames.
    #[inline]
    pub fn receive(
        &mut self,
        pool: &mut BufferPool,
        most: usize,
        look: bool,
        see: impl FnMut(Frame<'_>, u32),
    ) -> Result<usize, BurstFault> {
        match &mut self.ring {
            Layout::Split(ring) => ring.receive(pool, most, look, see),
            Layout::Packed(ring) => ring.receive(pool, most, look, see),
        }
    }

    /// Does the device want to be kicked for what was published? Costs a full fence.
    #[inline]
    pub fn needs_kick(&self) -> bool {
        match &self.ring {
            Layout::Split(ring) => ring.needs_kick(),
            Layout::Packed(ring) => ring.needs_kick(),
        }
    }
}
