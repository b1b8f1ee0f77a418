//! The ring of a packet socket, in which the kernel puts received frames (packet(7), `TPACKET_V2`).
//!
//! Kernel and process share the ring's memory. The status in the header of each slot says to which
//! of them the slot belongs. The kernel takes slots in their order, and this process reads them in
//! their order. What is in the ring survives the process: the kernel keeps it as long as anybody
//! has the socket. So does the place at which the process reads: it is kept in the bytes behind the
//! first block's slots, which the kernel does not use.
#![allow(unsafe_code)]

use std::io;
use std::mem::offset_of;
use std::ops::Range;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

use libc::tpacket2_hdr;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use taut_api::fabric::message::PacketRing;

/// Alignment of slots (`TPACKET_ALIGNMENT`).
const ALIGNMENT: u32 = 16;
/// Most bytes of a ring.
const LARGEST: u64 = 1 << 30;
/// Status of a slot that [`Ring::mark`] has marked. The kernel does not use this bit, and clears it
/// with the next frame.
const MARKED: u32 = 1 << 24;

/// Bytes of a slot that nobody needs: the kernel has the sender's address there
/// (`struct sockaddr_ll`), which the frame has as well.
pub const SPARE: Range<usize> = size_of::<tpacket2_hdr>()..size_of::<tpacket2_hdr>() + 16;

/// A mapped ring.
#[derive(Debug)]
pub struct Ring {
    /// The first slot. All slots are aligned as their headers.
    base: NonNull<tpacket2_hdr>,
    shape: PacketRing,
    /// The slot that is read next.
    at: u32,
    /// The slot `at` was seen to belong to this process.
    held: bool,
    /// Number of slots before `at` that were read and not given back yet.
    read: u32,
}

// SAFETY: the mapping belongs to this value alone and can be used from any thread.
unsafe impl Send for Ring {}

/// Place of a received frame in its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// Offset of the frame. The virtio-net header is before it.
    pub at: usize,
    /// Length of the frame in the slot.
    pub len: usize,
    /// The slot has the whole frame.
    pub is_whole: bool,
    /// The VLAN tag that the kernel took out of the frame: its type and content, as on the wire.
    pub tag: Option<[u8; 4]>,
    /// The slot was marked, by this process or by the one before it.
    pub marked: bool,
}

impl Ring {
    /// Maps the ring of a socket that was set up with this shape.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] if there can be no such ring; else the kernel's error.
    pub fn map(socket: impl AsFd, shape: PacketRing) -> io::Result<Self> {
        let len = length(shape).ok_or(io::ErrorKind::InvalidInput)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses an address that is not in use.
        let base = unsafe { mmap(std::ptr::null_mut(), len, access, MapFlags::SHARED, socket, 0)? };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::InvalidData)?;
        let mut ring = Self { base, shape, at: 0, held: false, read: 0 };
        // A new ring begins with slot 0.
        ring.at = ring.kept_place().load(Acquire) % ring.slots();
        Ok(ring)
    }

    /// Returns where the oldest frame is that was not read yet; `None` if there is none. It is the
    /// same one until [`Self::advance`] is called.
    pub fn first(&mut self) -> Option<Received> {
        let at = self.at;
        self.held = self.read < self.slots() && self.is_ours(at);
        if !self.held {
            return None;
        }
        let header = self.header(at);
        let slot = self.shape.slot as usize;
        let frame = usize::from(header.tp_mac).min(slot);
        Some(Received {
            at: frame,
            len: (header.tp_snaplen as usize).min(slot - frame),
            is_whole: header.tp_snaplen == header.tp_len && header.tp_snaplen as usize <= slot - frame,
            tag: tag(&header),
            marked: header.tp_status & MARKED != 0,
        })
    }

    /// Marks the slot of the frame that [`Self::first`] found, until it is given back. A successor
    /// that sees the mark also sees every write made before this call. Later writes may be missing.
    pub fn mark(&mut self) {
        if self.held {
            self.status(self.at).fetch_or(MARKED, AcqRel);
        }
    }

    /// Returns the slot of the frame that [`Self::first`] found; nothing if it found none.
    pub fn slot(&mut self) -> &mut [u8] {
        if self.held {
            // SAFETY: `address` is the beginning of a slot of this many bytes in the mapping. The
            // slot belongs to this process, so the kernel does not touch it until `release` is
            // called after `advance`. Both need `&mut self` and so end this borrow.
            unsafe { std::slice::from_raw_parts_mut(self.address(self.at).cast(), self.shape.slot as usize) }
        } else {
            &mut []
        }
    }

    /// Goes on to the next frame. The one that [`Self::first`] found is read; its slot belongs to
    /// this process until [`Self::release`] is called, so that a successor would find it.
    pub fn advance(&mut self) {
        if std::mem::take(&mut self.held) {
            self.at = (self.at + 1) % self.slots();
            self.read += 1;
        }
    }

    /// Gives the slots of all frames that were read back to the kernel.
    pub fn release(&mut self) {
        let read = std::mem::take(&mut self.read);
        if read == 0 {
            return;
        }
        // A successor of a process that ends between the two steps begins behind frames that are
        // still there. It reads them once more when it comes round to them.
        self.kept_place().store(self.at, Release);
        let slots = self.slots();
        for before in (1..=read).rev() {
            self.status((self.at + slots - before) % slots).store(libc::TP_STATUS_KERNEL, Release);
        }
    }

    /// Returns the word that has the place at which this process and its successors read.
    fn kept_place(&self) -> &AtomicU32 {
        let behind = self.shape.slots_per_block as usize * self.shape.slot as usize;
        let word = self.base.as_ptr().wrapping_byte_add(behind);
        // SAFETY: `length` has checked that the first block has this word behind its slots. It is
        // aligned, because slots are, and all processes access it only atomically.
        unsafe { AtomicU32::from_ptr(word.cast()) }
    }

    fn slots(&self) -> u32 {
        self.shape.slots_per_block * self.shape.blocks
    }

    fn is_ours(&self, at: u32) -> bool {
        self.status(at).load(Acquire) & libc::TP_STATUS_USER != 0
    }

    /// Returns the address of slot `at`, which is less than [`Self::slots`].
    fn address(&self, at: u32) -> *mut tpacket2_hdr {
        let block = (at / self.shape.slots_per_block) as usize * self.shape.block as usize;
        let offset = block + (at % self.shape.slots_per_block) as usize * self.shape.slot as usize;
        // SAFETY: `length` has checked that all slots are within the mapping.
        unsafe { self.base.as_ptr().byte_add(offset) }
    }

    fn status(&self, at: u32) -> &AtomicU32 {
        let word = self.address(at).wrapping_byte_add(offset_of!(tpacket2_hdr, tp_status));
        // SAFETY: the word is within the slot and aligned, because slots are. Kernel and process
        // access it only atomically while the slot may change hands.
        unsafe { AtomicU32::from_ptr(word.cast()) }
    }

    /// Reads the header of a slot that belongs to this process.
    fn header(&self, at: u32) -> tpacket2_hdr {
        // SAFETY: a slot is large enough for the header, and aligned. Any bytes are a header. The
        // kernel does not write to it while the slot belongs to this process.
        unsafe { self.address(at).read() }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if let Some(len) = length(self.shape) {
            // SAFETY: this is the whole mapping, and nothing refers to it any more. An error would
            // mean that it does not exist.
            let _ = unsafe { munmap(self.base.as_ptr().cast(), len) };
        }
    }
}

/// Returns the tag that the kernel took out of a frame, if it did.
fn tag(header: &tpacket2_hdr) -> Option<[u8; 4]> {
    const TAG_8021Q: u16 = 0x8100;
    let has = |status| header.tp_status & status != 0;
    has(libc::TP_STATUS_VLAN_VALID).then(|| {
        let kind = if has(libc::TP_STATUS_VLAN_TPID_VALID) { header.tp_vlan_tpid } else { TAG_8021Q };
        let ([a, b], [c, d]) = (kind.to_be_bytes(), header.tp_vlan_tci.to_be_bytes());
        [a, b, c, d]
    })
}

/// Returns the bytes of a ring; `None` if there can be no ring of this shape.
fn length(shape: PacketRing) -> Option<usize> {
    let PacketRing { slot, slots_per_block, block, blocks } = shape;
    let used = u64::from(slot) * u64::from(slots_per_block);
    let len = u64::from(block) * u64::from(blocks);
    let fits = slot as usize >= size_of::<tpacket2_hdr>()
        && slot.is_multiple_of(ALIGNMENT)
        && block.is_multiple_of(ALIGNMENT)
        && slots_per_block > 0
        && blocks > 0
        && used + size_of::<AtomicU32>() as u64 <= u64::from(block)
        && len <= LARGEST;
    fits.then_some(len as usize)
}

#[cfg(test)]
#[path = "packet_ring_tests.rs"]
mod tests;
