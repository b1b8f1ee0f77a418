//! Buffers of equal length that are used round-robin.

use std::sync::Arc;

use super::super::Ram;
use crate::header;
use crate::memory::{Area, GuestMemory};

/// Bytes before the frame. The frame begins on a cache line of its own, and its header is at the
/// end of the line before.
const HEADROOM: u64 = 320;
/// Least room of a buffer: a frame of full size.
const ROOM: u64 = 2048;

/// More buffers than a ring holds, so that memory is used round-robin as by real drivers.
#[derive(Debug)]
pub struct BufferPool {
    area: Area<8>,
    start: u64,
    stride: u64,
    count: u32,
    next: u32,
    /// Receive buffers that are not with the device, used round-robin.
    spare: Vec<u32>,
    next_spare: usize,
    /// The receive buffer of each entry that is with the device.
    held: Vec<u32>,
}

impl BufferPool {
    /// Allocates `count` buffers for frames of up to `len` bytes without header; `None` when the
    /// memory is used up.
    pub fn allocate(ram: &mut Ram, count: u32, len: u32) -> Option<Self> {
        // An odd number of lines spreads the buffers over all sets of a cache.
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

    /// Guest address of a buffer's frame, which is also the end of its header.
    pub fn frame_addr(&self, buffer: u32) -> u64 {
        self.start + u64::from(buffer) * self.stride + HEADROOM
    }

    /// Number of bytes of a buffer that a device may fill, header included.
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

    /// The next buffer to send. The device has returned it before if there are more buffers than
    /// entries and all come back in order.
    #[inline]
    pub(super) fn take(&mut self) -> u32 {
        let buffer = self.next;
        self.next = if buffer + 1 == self.count { 0 } else { buffer + 1 };
        buffer
    }

    /// Assigns one buffer to each of `entries` entries. The others are spare.
    pub(super) fn divide(&mut self, entries: u16) {
        let entries = u32::from(entries).min(self.count);
        self.held = (0..entries).collect();
        self.spare = (entries..self.count).collect();
    }

    /// The buffer of an entry.
    #[inline]
    pub(super) fn held(&self, entry: u16) -> u32 {
        self.held[usize::from(entry)]
    }

    /// Replaces the buffer of an entry by a spare one and returns the new one.
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
    /// Index of the buffer in its pool.
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

    /// Prefetches the header, and with `look` also the first line of the frame.
    #[inline]
    pub(super) fn prefetch(&self, look: bool) {
        self.area.prefetch(self.at - header::LEN);
        if look {
            self.area.prefetch(self.at);
        }
    }
}
