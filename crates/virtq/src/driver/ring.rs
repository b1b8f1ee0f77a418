//! The driver end of one split ring.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use thiserror::Error;

use super::Ram;
use crate::device::{QueueConfig, Start};
use crate::fault::QueueError;
use crate::features;
use crate::memory::{Area, GuestMemory};
use crate::split::{self, DESC_INDIRECT, DESC_NEXT, DESC_WRITE, Descriptor};

/// Where the three areas of a queue lie: guest addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueLayout {
    /// Entries.
    pub size: u16,
    /// Descriptor table.
    pub desc: u64,
    /// Available ring.
    pub avail: u64,
    /// Used ring.
    pub used: u64,
}

impl QueueLayout {
    /// Places a queue of `size` entries, each area on cache lines of its own; `None` when the memory is used up.
    pub fn allocate(ram: &mut Ram, size: u16) -> Option<Self> {
        let mut place = |len: usize| ram.allocate((len as u64).next_multiple_of(64), 64);
        let [desc, avail, used] = split::area_lengths(size, true).map(&mut place);
        Some(Self { size, desc: desc?, avail: avail?, used: used? })
    }

    /// The same queue as the device end is told of it.
    pub fn config(&self, features: u64, start: Start) -> QueueConfig {
        QueueConfig { size: self.size, desc: self.desc, avail: self.avail, used: self.used, features, start }
    }
}

/// One buffer of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Guest address.
    pub addr: u64,
    /// Length in bytes.
    pub len: u32,
    /// Does the device write it?
    pub writable: bool,
}

/// A chain that the device has returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Used {
    /// Head of the chain, as [`Ring::add`] returned it.
    pub head: u16,
    /// Bytes that the device wrote.
    pub written: u32,
}

/// What a device did wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum UsedFault {
    /// It returned what it was never given.
    #[error("the device returned chain {id}, which it did not have")]
    Unknown {
        /// What it returned.
        id: u32,
    },
    /// It claims to have written more than the buffer holds, or less than a header.
    #[error("the device wrote {written} bytes into a buffer of {room}")]
    Length {
        /// Bytes that it claims.
        written: u32,
        /// Length of the buffer.
        room: u32,
    },
    /// It returned fewer buffers than the frame's header announces.
    #[error("the device returned {returned} of a frame's {announced} buffers")]
    Missing {
        /// Buffers found.
        returned: u16,
        /// Buffers announced.
        announced: u16,
    },
}

/// The driver end of a ring: free descriptors, chains with the device.
#[derive(Debug)]
pub struct Ring {
    layout: QueueLayout,
    event_idx: bool,
    desc: Area<16>,
    avail: Area<2>,
    used: Area<4>,
    /// Free descriptors, the next one last.
    free: Vec<u16>,
    /// Per head: length of its chain, 0 if it is not with the device.
    chain_len: Vec<u16>,
    /// Per descriptor: the one behind it in its chain.
    next: Vec<u16>,
    /// Next available entry to write.
    next_avail: u16,
    /// Available index as the device sees it.
    published: u16,
    /// Available index when the device was last kicked, or found not to want it.
    kicked: u16,
    /// Next used entry to read.
    next_used: u16,
}

impl Ring {
    /// Sets the driver end up; the areas must be zeroed, both ends at position 0.
    pub fn new(memory: &Arc<GuestMemory>, layout: QueueLayout, features: u64) -> Result<Self, QueueError> {
        let size = layout.size;
        if !size.is_power_of_two() || size > split::MAX_SIZE {
            return Err(QueueError::Size(size));
        }
        let [desc_len, avail_len, used_len] = split::area_lengths(size, true);
        Ok(Self {
            layout,
            event_idx: features & features::EVENT_IDX != 0,
            desc: split::area(memory, "descriptor table", layout.desc, desc_len)?,
            avail: split::area(memory, "available ring", layout.avail, avail_len)?,
            used: split::area(memory, "used ring", layout.used, used_len)?,
            free: (0..size).rev().collect(),
            chain_len: vec![0; size.into()],
            next: vec![0; size.into()],
            next_avail: 0,
            published: 0,
            kicked: 0,
            next_used: 0,
        })
    }

    /// Where its areas lie.
    pub fn layout(&self) -> QueueLayout {
        self.layout
    }

    /// Free descriptors.
    #[inline]
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// The `count` descriptors that the next chain would take, in its order; a buffer can be chosen by descriptor.
    #[inline]
    pub(super) fn next_free(&self, count: usize) -> impl Iterator<Item = u16> + '_ {
        self.free.iter().rev().take(count).copied()
    }

    /// Makes a chain of buffers available; the device sees it after [`Self::publish`]. Returns its head, or `None` when
    /// there are not enough free descriptors, or no parts.
    #[inline]
    pub fn add(&mut self, parts: impl ExactSizeIterator<Item = Part>) -> Option<u16> {
        let count = parts.len();
        if count == 0 || count > self.free.len() {
            return None;
        }
        let head = self.free[self.free.len() - 1];
        let mut last = None;
        for (position, part) in parts.enumerate() {
            let index = self.free.pop()?;
            if let Some(last) = last.replace(index) {
                self.next[usize::from(last)] = index;
            }
            let more = position + 1 < count;
            let next = if more { self.free[self.free.len() - 1] } else { 0 };
            self.write_descriptor(index, descriptor(part, more.then_some(next)));
        }
        self.make_available(head, count as u16);
        Some(head)
    }

    /// Makes a chain available as an indirect table at `table` (16 bytes per part, in `memory`).
    pub fn add_indirect(&mut self, memory: &Arc<GuestMemory>, table: u64, parts: &[Part]) -> Option<u16> {
        let head = *self.free.last()?;
        let mut bytes = Vec::with_capacity(parts.len() * split::DESC_LEN);
        for (index, part) in parts.iter().enumerate() {
            let next = (index + 1 < parts.len()).then_some(index as u16 + 1);
            bytes.extend(descriptor(*part, next).to_words().iter().flat_map(|word| word.to_le_bytes()));
        }
        memory.write(table, &bytes).ok()?;
        self.free.pop();
        let len = bytes.len() as u32;
        self.write_descriptor(head, Descriptor { addr: table, len, flags: DESC_INDIRECT, next: 0 });
        self.make_available(head, 1);
        Some(head)
    }

    #[inline]
    fn write_descriptor(&mut self, index: u16, descriptor: Descriptor) {
        let at = split::desc_at(index);
        let [low, high] = descriptor.to_words();
        self.desc.store_u64(at, low);
        self.desc.store_u64(at + 8, high);
    }

    #[inline]
    fn make_available(&mut self, head: u16, count: u16) {
        self.chain_len[usize::from(head)] = count;
        self.avail.store_u16(split::avail_at(self.next_avail, self.layout.size), head, Ordering::Relaxed);
        self.next_avail = self.next_avail.wrapping_add(1);
    }

    /// Shows the device all chains added.
    #[inline]
    pub fn publish(&mut self) {
        if self.published != self.next_avail {
            // Release: descriptors, entries and payload before the index.
            self.avail.store_u16(split::INDEX, self.next_avail, Ordering::Release);
            self.published = self.next_avail;
        }
    }

    /// Has the device asked to be kicked for what was published since the last call?
    #[inline]
    pub fn needs_kick(&mut self) -> bool {
        if self.published == self.kicked {
            return false;
        }
        // The index must be visible before the device's wish is read.
        fence(Ordering::SeqCst);
        let old = std::mem::replace(&mut self.kicked, self.published);
        if self.event_idx {
            let event = self.used.load_u16(split::avail_event_at(self.layout.size), Ordering::Relaxed);
            split::passed_event(event, self.published, old)
        } else {
            self.used.load_u16(split::FLAGS, Ordering::Relaxed) & split::USED_NO_NOTIFY == 0
        }
    }

    /// Takes a chain back that the device is done with; its descriptors are free again.
    #[inline]
    pub fn poll_used(&mut self) -> Result<Option<Used>, UsedFault> {
        // Acquire: entries and payload were written before the index.
        if self.used.load_u16(split::INDEX, Ordering::Acquire) == self.next_used {
            return Ok(None);
        }
        let entry = split::used_at(self.next_used, self.layout.size);
        let (id, written) = (self.used.load_u32(entry), self.used.load_u32(entry + 4));
        let count = self.chain_len.get_mut(id as usize).map_or(0, std::mem::take);
        if count == 0 {
            return Err(UsedFault::Unknown { id });
        }
        let head = id as u16;
        let mut index = head;
        for _ in 0..count {
            self.free.push(index);
            index = self.next[usize::from(index)];
        }
        self.next_used = self.next_used.wrapping_add(1);
        Ok(Some(Used { head, written }))
    }

    /// Asks the device not to interrupt.
    pub fn suspend_interrupts(&mut self) {
        // With EVENT_IDX the threshold stays behind: the device has passed it.
        if !self.event_idx {
            self.avail.store_u16(split::FLAGS, split::AVAIL_NO_INTERRUPT, Ordering::Relaxed);
        }
    }

    /// Asks the device to interrupt at the next chain it returns. True if one came back already: then look again.
    pub fn arm_interrupts(&mut self) -> bool {
        if self.event_idx {
            let event = split::used_event_at(self.layout.size);
            self.avail.store_u16(event, self.next_used, Ordering::Relaxed);
        } else {
            self.avail.store_u16(split::FLAGS, 0, Ordering::Relaxed);
        }
        // The wish must be visible before the index is read again, or a chain that comes now is missed by both.
        fence(Ordering::SeqCst);
        self.used.load_u16(split::INDEX, Ordering::Relaxed) != self.next_used
    }
}

fn descriptor(part: Part, next: Option<u16>) -> Descriptor {
    let write = if part.writable { DESC_WRITE } else { 0 };
    let more = if next.is_some() { DESC_NEXT } else { 0 };
    Descriptor { addr: part.addr, len: part.len, flags: write | more, next: next.unwrap_or(0) }
}
