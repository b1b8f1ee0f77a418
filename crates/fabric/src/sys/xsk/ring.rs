//! One ring: entries, the index of its producer and that of its consumer. Kernel and process have
//! one each. Indices count all entries ever, modulo 2³².
#![allow(unsafe_code)]

use std::io;
use std::marker::PhantomData;
use std::os::fd::AsFd;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Release};

use taut_api::fabric::message::XdpRing;

use super::Damaged;
use super::mapping::Mapping;

/// Most entries of a ring.
const MOST: u32 = 1 << 16;

/// A type of entries. Any bytes are a value.
pub(super) trait Entry: Copy {}

impl Entry for u64 {}

/// A frame in its chunk (`struct xdp_desc`).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Descriptor {
    /// Offset of the frame from the first chunk.
    pub(super) address: u64,
    /// Length of the frame.
    pub(super) len: u32,
    /// Options, which are not used.
    pub(super) options: u32,
}

impl Entry for Descriptor {}

/// A mapped ring.
#[derive(Debug)]
pub(super) struct Ring<T> {
    mapping: Mapping,
    entries: u32,
    producer: usize,
    consumer: usize,
    flags: usize,
    first: usize,
    of: PhantomData<T>,
}

impl<T: Entry> Ring<T> {
    /// Maps the ring at an offset of a socket.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] if there can be no such ring; else the kernel's error.
    pub(super) fn map(socket: impl AsFd, offset: u64, shape: XdpRing) -> io::Result<Self> {
        let XdpRing { entries, producer, consumer, flags, first } = shape;
        if !entries.is_power_of_two() || entries > MOST {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let bytes = u64::from(entries) * size_of::<T>() as u64;
        let end = first.checked_add(bytes).ok_or(io::ErrorKind::InvalidInput)?;
        let mapping = Mapping::new(socket, offset, end)?;
        let word = |at| mapping.check(at, size_of::<u32>() as u64, align_of::<u32>());
        let (producer, consumer, flags) = (word(producer)?, word(consumer)?, word(flags)?);
        let first = mapping.check(first, bytes, align_of::<T>())?;
        Ok(Self { mapping, entries, producer, consumer, flags, first, of: PhantomData })
    }

    /// Number of entries.
    pub(super) fn entries(&self) -> u32 {
        self.entries
    }

    /// The producer's index.
    pub(super) fn producer(&self) -> &AtomicU32 {
        // SAFETY: `map` has checked the offset. Kernel and processes access indices only
        // atomically.
        unsafe { self.mapping.word(self.producer) }
    }

    /// The consumer's index.
    pub(super) fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as for the producer's index.
        unsafe { self.mapping.word(self.consumer) }
    }

    /// Tells whether the kernel has to be called before it looks at the ring.
    pub(super) fn needs_wake_up(&self) -> bool {
        // SAFETY: `map` has checked the offset. The flags are accessed only atomically.
        let flags = unsafe { self.mapping.word(self.flags) };
        flags.load(Acquire) & libc::XDP_RING_NEED_WAKEUP != 0
    }

    /// Returns the number of entries from `index` on that the producer has written.
    pub(super) fn ready(&self, index: u32) -> Result<u32, Damaged> {
        let ready = self.producer().load(Acquire).wrapping_sub(index);
        if ready <= self.entries { Ok(ready) } else { Err(Damaged) }
    }

    /// Reads the entry with this index, which the producer has written.
    pub(super) fn read(&self, index: u32) -> T {
        // SAFETY: the entry is within the mapping and aligned. The producer does not write to it
        // until the consumer's index is beyond it. A process that does nevertheless can make the
        // value any bytes, which is a value of `T`.
        unsafe { self.entry(index).read_volatile() }
    }

    /// Writes the entry with this index, which the consumer does not read yet.
    pub(super) fn write(&self, index: u32, entry: T) {
        // SAFETY: the entry is within the mapping and aligned. The consumer reads it only after the
        // producer's index was stored.
        unsafe { self.entry(index).write_volatile(entry) }
    }

    /// Sets the producer's index: the consumer sees all entries before it.
    pub(super) fn publish(&self, index: u32) {
        self.producer().store(index, Release);
    }

    /// Sets the consumer's index: the producer may write all entries before it again.
    pub(super) fn release(&self, index: u32) {
        self.consumer().store(index, Release);
    }

    fn entry(&self, index: u32) -> *mut T {
        let at = index & (self.entries - 1);
        self.mapping.at(self.first + at as usize * size_of::<T>()).cast()
    }
}
