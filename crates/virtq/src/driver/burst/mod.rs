//! The driver end for load generators: bursts of frames of one length with one descriptor each, and
//! indices written once per burst. The driver costs so little that a measurement finds the limit of
//! the switch and not that of the generator.
//!
//! The driver requires, and checks, that transmitted frames come back in order. The bytes of a
//! frame stay as they are unless the caller changes them.

mod packed;
mod pool;
mod split;

use std::sync::Arc;

use thiserror::Error;

pub use pool::{BufferPool, Frame};

use super::{QueueLayout, UsedFault};
use crate::fault::QueueError;
use crate::features::RING_PACKED;
use crate::memory::GuestMemory;
use crate::ring::{Part, each};

/// Most frames of one burst.
pub const MAX_BURST: usize = 64;

/// Violation of the protocol by a device in a burst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum BurstFault {
    /// The device returned a buffer that it did not have.
    #[error(transparent)]
    Used(#[from] UsedFault),
    /// The device returned a transmitted frame before an earlier one.
    #[error("the device returned entry {found} instead of {expected}; this driver requires them in order")]
    OutOfOrder {
        /// Entry that it returned.
        found: u16,
        /// Entry that was next.
        expected: u16,
    },
    /// The device claims to have returned more entries than it had.
    #[error("the device returned {returned} entries but had only {had}")]
    TooMany {
        /// Number of entries that it claims.
        returned: u16,
        /// Number of entries that it had.
        had: u16,
    },
}

/// Slot and length of a used buffer.
type Entry = (u16, u32);

/// The steps of a burst that depend on the ring format.
trait Format {
    /// Buffers that are written to the ring but not visible to the device.
    type Batch;

    /// Number of buffers that are with the device, as far as is known.
    fn in_flight(&self) -> u16;

    /// Starts a batch.
    fn begin(&self) -> Self::Batch;

    /// Slot of the next buffer when buffers are used in the order of the ring.
    fn next_slot(&self, batch: &Self::Batch) -> u16;

    /// Adds a buffer to a batch. The device returns it by the number of its slot.
    fn add(&mut self, batch: &mut Self::Batch, slot: u16, buffer: Part);

    /// Makes a batch visible to the device.
    fn publish(&mut self, batch: Self::Batch);

    /// Takes back transmitted buffers, which must come back in order.
    fn reclaim(&mut self) -> Result<(), BurstFault>;

    /// Takes back used buffers, as many as `entries` has room for. Calls `found` with each slot at
    /// once. Returns the number of buffers.
    fn take_used(&mut self, entries: &mut [Entry], found: impl FnMut(u16)) -> Result<usize, BurstFault>;

    /// Tells whether the device wants to be kicked for what was published.
    fn needs_kick(&self) -> bool;
}

#[inline]
fn send<F: Format>(
    (ring, size): (&mut F, u16),
    pool: &mut BufferPool,
    (count, len): (usize, u32),
    mut touch: impl FnMut(Frame<'_>),
) -> Result<usize, BurstFault> {
    if usize::from(size - ring.in_flight()) < count {
        ring.reclaim()?;
    }
    let count = count.min(usize::from(size - ring.in_flight()));
    let mut batch = ring.begin();
    for _ in 0..count {
        let buffer = pool.take();
        touch(pool.frame(buffer));
        let slot = ring.next_slot(&batch);
        ring.add(&mut batch, slot, Part { addr: pool.addr(buffer), len, writable: false });
    }
    ring.publish(batch);
    Ok(count)
}

fn fill<F: Format>(ring: &mut F, size: u16, pool: &mut BufferPool) {
    pool.divide(size);
    let mut batch = ring.begin();
    for slot in 0..size {
        let addr = pool.addr(pool.held(slot));
        ring.add(&mut batch, slot, Part { addr, len: pool.room(), writable: true });
    }
    ring.publish(batch);
}

#[inline]
fn receive<F: Format>(
    ring: &mut F,
    pool: &mut BufferPool,
    (most, look): (usize, bool),
    mut see: impl FnMut(Frame<'_>, u32),
) -> Result<usize, BurstFault> {
    let mut entries = [(0, 0); MAX_BURST];
    let entries = &mut entries[..most.min(MAX_BURST)];
    let count = ring.take_used(entries, |slot| pool.frame(pool.held(slot)).prefetch(look))?;
    let mut batch = ring.begin();
    for &(slot, len) in &entries[..count] {
        see(pool.frame(pool.held(slot)), len);
        let buffer = pool.exchange(slot);
        ring.add(&mut batch, slot, Part { addr: pool.addr(buffer), len: pool.room(), writable: true });
    }
    ring.publish(batch);
    Ok(count)
}

/// One queue of a load generator, split or packed.
#[derive(Debug)]
pub struct BurstQueue {
    size: u16,
    ring: crate::ring::Format<split::Ring, packed::Ring>,
}

impl BurstQueue {
    /// Sets up the driver end in the format that `features` selects. The areas must be zeroed and
    /// both ends at their first position.
    pub fn new(memory: &Arc<GuestMemory>, layout: QueueLayout, features: u64) -> Result<Self, QueueError> {
        let ring = if features & RING_PACKED == 0 {
            crate::ring::Format::Split(split::Ring::new(layout.split(memory, features)?))
        } else {
            crate::ring::Format::Packed(packed::Ring::new(layout.packed(memory, features)?, features))
        };
        Ok(Self { size: layout.size, ring })
    }

    /// Sends up to `count` frames of `len` bytes, header included. Calls `touch` for each frame
    /// before. Returns the number of frames that there was room for.
    #[inline]
    pub fn send(
        &mut self,
        pool: &mut BufferPool,
        count: usize,
        len: u32,
        touch: impl FnMut(Frame<'_>),
    ) -> Result<usize, BurstFault> {
        each!(&mut self.ring, ring => send((ring, self.size), pool, (count, len), touch))
    }

    /// Number of sent frames that have not come back, as far as is known.
    pub fn in_flight(&self) -> usize {
        each!(&self.ring, ring => ring.in_flight()).into()
    }

    /// Gives the device empty buffers until the ring is full. Must be called once, before the first
    /// [`Self::receive`].
    pub fn fill(&mut self, pool: &mut BufferPool) {
        each!(&mut self.ring, ring => fill(ring, self.size, pool));
    }

    /// Takes up to `most` received frames, at most [`MAX_BURST`], calls `see` for each with the
    /// length that the device reported, and gives the device other buffers for them. Returns the
    /// number of frames. `look`: whether `see` reads bytes of the frames.
    #[inline]
    pub fn receive(
        &mut self,
        pool: &mut BufferPool,
        most: usize,
        look: bool,
        see: impl FnMut(Frame<'_>, u32),
    ) -> Result<usize, BurstFault> {
        each!(&mut self.ring, ring => receive(ring, pool, (most, look), see))
    }

    /// Tells whether the device wants to be kicked for what was published. Costs a full fence.
    #[inline]
    pub fn needs_kick(&self) -> bool {
        each!(&self.ring, ring => ring.needs_kick())
    }
}
