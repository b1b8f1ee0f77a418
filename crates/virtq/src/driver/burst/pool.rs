//! Buffers of equal length, taken in turn.

use std::sync::Arc;

use super::super::Ram;
use crate::header;
use crate::memory::{Area, GuestMemory};

/// Bytes before the frame, so that it begins on a cache line of its own, with its header at the end of the one before.
const HEADROOM: u64 = 320;
/// Room of a buffer, at least: a full frame's.
const ROOM: u64 = 2048;

/// Buffers, more than a ring holds: as real drivers' memory does, it goes round.
#[derive(Debug)]
pub struct BufferPool {
    area: Area<8>,
    start: u64,
    stride: u64,
    count: u32,
    next: u32,
    /// Buffers that are not with the device, for receiving; used in turn.
    spare: Vec<u32>,
    next_spare: usize,
    /// Buffer of each entry that is with the device, for receiving.
    held: Vec<u32>,
}

impl BufferPool {
    /// `count` buffers for frames of up to `len` bytes without header; `None` when the memory is used up.
    pub fn allocate(ram: &mut Ram, count: u32, len: u32) -> Option<Self> {
        // An odd number of lines: buffers spread over all sets of a cache.
        let lines = (HEADROOM + u64::from(len).max(ROOM)).div_ceil(64) | 1;
        let stride = lines * 64;
        let start = ram.allocate(stride * u64::from(count), 64)?;
        let area = area(ram.memory(), start, stride * u64::from(count))?;
        Some(Self { area, start, stride, count, next: 0, spare: Vec::new(), next_spare: 0, held: Vec::new() })
    }

    /// Number of buffers.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Guest address of a buffer's frame; its header ends there.
    pub fn frame_addr(&self, buffer: u32) -> u64 {
        self.start + u64::from(buffer) * self.stride + HEADROOM
    }

    /// Bytes of a buffer that a device may fill, header included.
    pub(super) fn room(&self) -> u32 {
        (self.stride - HEADROOM + header::LEN as u64) as u32
    }

    /// Guest address of a buffer's header.
    #[inline]
    pub(super) fn addr(&self, buffer: u32) -> u64 {
        self.frame_addr(buffer) - header::LEN as u64
    }

    /// A buffer's bytes.
    #[inline]
    pub(super) fn frame(&self, buffer: u32) -> Frame<'_> {
        Frame { area: &self.area, at: (u64::from(buffer) * self.stride + HEADROOM) as usize, buffer }
    }

    /// The next buffer to send. It is free again if there are more buffers than entries, all in order.
    #[inline]
    pub(super) fn take(&mut self) -> u32 {
        let buffer = self.next;
        self.next = if buffer + 1 == self.count { 0 } else { buffer + 1 };
        buffer
    }

    /// Divides the buffers: one for each of `entries`, the others spare.
    pub(super) fn divide(&mut self, entries: u16) {
        let entries = u32::from(entries).min(self.count);
        self.held = (0..entries).collect();
        self.spare = (entries..self.count).collect();
    }

    /// The buffer that an entry holds.
    #[inline]
    pub(super) fn held(&self, entry: u16) -> u32 {
        self.held[usize::from(entry)]
    }

    /// Has an entry hold a spare buffer instead.
    #[inline]
    pub(super) fn exchange(&mut self, entry: u16) -> u32 {
        let held = &mut self.held[usize::from(entry)];
        if let Some(spare) = self.spare.get_mut(self.next_spare) {
            std::mem::swap(held, spare);
            self.next_spare += 1;
            if self.next_spare == self.spare.len() {
                self.next_spare = 0;
            }
        }
        *held
    }
}

fn area(memory: &Arc<GuestMemory>, start: u64, len: u64) -> Option<Area<8>> {
    Area::at_user_addr(memory, start, usize::try_from(len).ok()?).ok()
}

/// A frame in a buffer.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'p> {
    area: &'p Area<8>,
    at: usize,
    buffer: u32,
}

impl Frame<'_> {
    /// Which buffer of its pool.
    #[inline]
    pub fn buffer(&self) -> u32 {
        self.buffer
    }

    /// Number of buffers that the header in front announces.
    #[inline]
    pub fn buffers(&self) -> u16 {
        self.area.load_u16(self.at - 2, std::sync::atomic::Ordering::Relaxed)
    }

    /// Eight bytes of the frame, as a little-endian number; `at` is a multiple of 8.
    #[inline]
    pub fn load(&self, at: usize) -> u64 {
        self.area.load_u64(self.at + at)
    }

    /// Writes eight bytes of the frame; `at` is a multiple of 8.
    #[inline]
    pub fn store(&self, at: usize, value: u64) {
        self.area.store_u64(self.at + at, value);
    }

    /// Begins to fetch the header, and the first line if that is going to be looked at.
    #[inline]
    pub(super) fn prefetch(&self, look: bool) {
        self.area.prefetch(self.at - header::LEN);
        if look {
            self.area.prefetch(self.at);
        }
    }
}
