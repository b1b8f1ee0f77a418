//! The memory file of an XDP socket: chunks of frames, and the words that tell a successor who has
//! them.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::AtomicU32;

use rustix::fs::fstat;
use taut_api::fabric::message::XdpMemory;

use super::mapping::Mapping;

/// Most chunks of a direction.
const MOST: u32 = 1 << 15;

/// Number of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ChunkIdx(pub(super) u32);

/// The mapped memory.
#[derive(Debug)]
pub struct Chunks {
    mapping: Mapping,
    shape: XdpMemory,
}

impl Chunks {
    /// Maps the memory of this shape.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] if there can be no such memory, or the file is shorter; else
    /// the kernel's error.
    pub fn map(file: impl AsFd, shape: XdpMemory) -> io::Result<Self> {
        let XdpMemory { chunk, receiving, sending, first } = shape;
        let words = XdpMemory::WORDS + u64::from(sending) * size_of::<AtomicU32>() as u64;
        let is_possible = chunk.is_power_of_two()
            && (2048..=1 << 16).contains(&chunk)
            && (1..=MOST).contains(&receiving)
            && sending <= MOST
            && first >= words
            && first <= 1 << 24
            && first.is_multiple_of(4096);
        if !is_possible || fstat(&file)?.st_size.cast_unsigned() < shape.bytes() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(Self { mapping: Mapping::new(file, 0, shape.bytes())?, shape })
    }

    pub(super) fn shape(&self) -> XdpMemory {
        self.shape
    }

    /// The number of received frames that were read and given back.
    pub(super) fn taken(&self) -> &AtomicU32 {
        // SAFETY: `map` has checked that the file is longer than its first word. All processes
        // access it only atomically.
        unsafe { self.mapping.word(0) }
    }

    /// The word of a chunk of frames to be sent.
    pub(super) fn word(&self, ChunkIdx(index): ChunkIdx) -> &AtomicU32 {
        let index = index.wrapping_sub(self.shape.receiving);
        assert!(index < self.shape.sending, "the chunk is one of frames to be sent");
        // SAFETY: `map` has checked that all words are before the chunks. All processes access them
        // only atomically.
        unsafe { self.mapping.word(XdpMemory::WORDS as usize + index as usize * size_of::<AtomicU32>()) }
    }

    /// Returns the address of a chunk, as entries of rings have it.
    pub(super) fn address(&self, ChunkIdx(index): ChunkIdx) -> u64 {
        u64::from(index) * u64::from(self.shape.chunk)
    }

    /// Returns the chunk that an address is in, if it is among those of received frames, or of
    /// frames to be sent.
    pub(super) fn find(&self, address: u64, of_received: bool) -> Option<ChunkIdx> {
        let index = u32::try_from(address / u64::from(self.shape.chunk)).ok()?;
        let receiving = self.shape.receiving;
        let all = if of_received { 0..receiving } else { receiving..receiving + self.shape.sending };
        all.contains(&index).then_some(ChunkIdx(index))
    }

    /// Returns a received frame; `None` if it is not within one chunk of received frames.
    ///
    /// # Safety
    /// The chunk is not given back to the kernel as long as the result lives.
    pub(super) unsafe fn frame(&self, address: u64, len: u32) -> Option<&[u8]> {
        let index = self.find(address, true)?;
        let end = self.address(index) + u64::from(self.shape.chunk);
        if address + u64::from(len) > end {
            return None;
        }
        let at = (self.shape.first + address) as usize;
        // SAFETY: the bytes are within a chunk, and so within the mapping. The caller answers for
        // the kernel, which is the only one that writes to received frames.
        Some(unsafe { std::slice::from_raw_parts(self.mapping.at(at), len as usize) })
    }

    /// Returns the bytes of a chunk of frames to be sent.
    ///
    /// # Safety
    /// The chunk is not on loan to the kernel, and there is no other reference to its bytes.
    #[expect(clippy::mut_from_ref, reason = "the caller answers for the chunk being its own")]
    pub(super) unsafe fn free_chunk(&self, index: ChunkIdx) -> &mut [u8] {
        assert!(self.find(self.address(index), false).is_some(), "the chunk is one of frames to be sent");
        let at = (self.shape.first + self.address(index)) as usize;
        // SAFETY: the chunk is within the mapping, and the caller's own.
        unsafe { std::slice::from_raw_parts_mut(self.mapping.at(at), self.shape.chunk as usize) }
    }
}
