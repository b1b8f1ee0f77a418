//! The driver end of one ring in either format.

use std::sync::Arc;

use thiserror::Error;

use super::QueueLayout;
use super::packed::PackedRing;
use super::slots::Slots;
use super::split::SplitRing;
use crate::fault::QueueError;
use crate::features;
use crate::memory::GuestMemory;
use crate::ring::{Format, Part, each};

/// A chain that the device has returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Used {
    /// Head of the chain, as [`Ring::add`] returned it.
    pub head: u16,
    /// Bytes that the device wrote.
    pub written: u32,
}

/// Violation of the protocol by a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum UsedFault {
    /// The device returned a chain that it did not have.
    #[error("the device returned chain {id}, which it did not have")]
    Unknown {
        /// ID that it returned.
        id: u32,
    },
    /// The device claims to have written more than the buffer holds, or less than a header.
    #[error("the device wrote {written} bytes into a buffer of {room}")]
    Length {
        /// Bytes that it claims.
        written: u32,
        /// Length of the buffer.
        room: u32,
    },
    /// The device returned fewer buffers than the frame's header announces.
    #[error("the device returned {returned} of a frame's {announced} buffers")]
    Missing {
        /// Buffers found.
        returned: u16,
        /// Buffers announced.
        announced: u16,
    },
}

/// The driver end of a ring, with its free descriptors and the chains that are with the device.
#[derive(Debug)]
pub struct Ring {
    layout: QueueLayout,
    slots: Slots,
    format: Format<SplitRing, PackedRing>,
}

impl Ring {
    /// Sets up the driver end in the negotiated format. The areas must be zeroed and both ends at
    /// their first position.
    pub fn new(memory: &Arc<GuestMemory>, layout: QueueLayout, features: u64) -> Result<Self, QueueError> {
        let format = if features & features::RING_PACKED == 0 {
            Format::Split(SplitRing::new(layout.split(memory, features)?))
        } else {
            Format::Packed(PackedRing::new(layout.packed(memory, features)?))
        };
        let slots = Slots::new(layout.size, features & features::IN_ORDER != 0);
        Ok(Self { layout, slots, format })
    }

    /// Addresses of its areas.
    pub fn layout(&self) -> QueueLayout {
        self.layout
    }

    /// Number of free descriptors.
    #[inline]
    pub fn free(&self) -> usize {
        self.slots.free()
    }

    /// The `count` slots that the next chain would take, in the order of the chain. A caller can
    /// choose buffers by slot.
    #[inline]
    pub(super) fn next_free(&self, count: usize) -> impl Iterator<Item = u16> + '_ {
        (0..count).map_while(|ahead| self.slots.upcoming(ahead))
    }

    /// Makes a chain of buffers available. The device sees it after [`Self::publish`]. Returns its
    /// head, or `None` when there are no parts or not enough free descriptors.
    #[inline]
    pub fn add(&mut self, parts: impl ExactSizeIterator<Item = Part> + Clone) -> Option<u16> {
        let room = room(parts.clone());
        let head = self.slots.give(parts.len(), room)?;
        match &mut self.format {
            Format::Split(ring) => ring.add(&self.slots, head, parts),
            Format::Packed(ring) => ring.add(head, parts),
        }
        Some(head)
    }

    /// Makes a chain available as an indirect table at the address `table` in `memory`, with 16
    /// bytes for each part.
    pub fn add_indirect(&mut self, memory: &Arc<GuestMemory>, table: u64, parts: &[Part]) -> Option<u16> {
        let entries = match &self.format {
            Format::Split(_) => SplitRing::table(parts),
            Format::Packed(_) => PackedRing::table(parts),
        };
        let bytes: Vec<u8> = entries.iter().flat_map(|word| word.to_le_bytes()).collect();
        memory.write(table, &bytes).ok()?;
        let room = room(parts.iter().copied());
        let head = self.slots.give(1, room)?;
        each!(&mut self.format, ring => ring.add_table(head, table, bytes.len() as u32));
        Some(head)
    }

    /// Makes all added chains visible to the device.
    #[inline]
    pub fn publish(&mut self) {
        each!(&mut self.format, ring => ring.publish());
    }

    /// Tells whether the device wants a kick for what was published since the last call.
    #[inline]
    pub fn needs_kick(&mut self) -> bool {
        each!(&mut self.format, ring => ring.needs_kick())
    }

    /// Takes back a chain that the device is done with. Its descriptors are free again.
    #[inline]
    pub fn poll_used(&mut self) -> Result<Option<Used>, UsedFault> {
        let (used, count) = if let Some(of_batch) = self.slots.rest_of_batch() {
            of_batch
        } else {
            let entry = each!(&self.format, ring => ring.used_entry());
            let Some((id, written)) = entry else { return Ok(None) };
            self.slots.returned(id, written)?
        };
        match &mut self.format {
            Format::Split(ring) => ring.pass_used(),
            Format::Packed(ring) => ring.pass_used(count),
        }
        Ok(Some(used))
    }

    /// Asks the device not to interrupt.
    pub fn suspend_interrupts(&mut self) {
        each!(&mut self.format, ring => ring.suspend_interrupts());
    }

    /// Asks the device to interrupt at the next chain that it returns. Returns true if a chain came
    /// back already; the caller should then look again.
    pub fn arm_interrupts(&mut self) -> bool {
        each!(&mut self.format, ring => ring.arm_interrupts())
    }
}

/// Number of bytes that the device may write.
#[inline]
fn room(parts: impl Iterator<Item = Part>) -> u32 {
    parts.filter(|part| part.writable).fold(0, |sum, part| part.len.saturating_add(sum))
}
