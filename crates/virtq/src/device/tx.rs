//! Transmit queues: frames from the guest.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::chain::{Chain, Chains, Direction};
use super::ring::Ring;
use super::{BURST, MAX_FRAME_LEN, MAX_PARTS, QueueConfig};
use crate::fault::{QueueError, RingFault};
use crate::header::{self, NetHeader};
use crate::memory::prefetch::LINE;
use crate::memory::wide::{self, Work};
use crate::memory::{Buffer, GuestMemory, Pieces};

/// Bytes of a frame that are copied when it is looked at.
pub const FIRST_BYTES: usize = 64;

/// Bytes of header and first bytes together.
pub(super) const HEAD: usize = header::LEN + FIRST_BYTES;

/// What a header's fields take but for `num_buffers`, which has no meaning in a transmit queue.
const FIELDS: usize = 10;

/// A slot begins so long before its header that the first bytes are a line of their own.
const GAP: usize = LINE - header::LEN;

/// A transmit queue of a guest.
#[derive(Debug)]
pub struct TxQueue {
    ring: Ring,
    slots: Box<[Slot; BURST]>,
    chains: Box<[Chain; BURST]>,
    /// The window: slots `first..end` hold frames that have been looked at and not completed.
    first: usize,
    end: usize,
}

/// Header and first bytes of a frame that has been looked at, copied once.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Slot {
    gap: [u8; GAP],
    bytes: [u8; HEAD],
}

impl TxQueue {
    /// The device end of a queue that a driver and its front end have set up.
    pub fn new(memory: &Arc<GuestMemory>, config: &QueueConfig) -> Result<Self, QueueError> {
        let most = (header::LEN + MAX_FRAME_LEN) as u64;
        let ring = Ring::new(memory, config, Direction::Transmit(most), BURST + 2 * MAX_PARTS)?;
        Ok(Self {
            ring,
            slots: Box::new([Slot { gap: [0; GAP], bytes: [0; HEAD] }; BURST]),
            chains: Box::new([Chain::default(); BURST]),
            first: 0,
            end: 0,
        })
    }

    /// Looks at the frames that wait, at most [`BURST`], and returns how many there are: [`Self::frame`] gives them.
    /// Frames that were not completed after the last look come first, and alone: nothing is read from the guest
    /// before they are completed.
    ///
    /// Frames in front of a faulty one are returned; the next look then finds the fault.
    #[inline]
    pub fn peek(&mut self) -> Result<usize, RingFault> {
        if self.first == self.end {
            self.refill()?;
        }
        Ok(self.end - self.first)
    }

    #[inline]
    fn refill(&mut self) -> Result<(), RingFault> {
        (self.first, self.end) = (0, 0);
        self.ring.chains.segments.clear();
        let count = self.ring.fetch(&mut self.chains[..], BURST + MAX_PARTS)?;
        let load =
            Load { slots: &mut self.slots[..count], chains: &self.chains[..count], from: &self.ring.chains };
        self.end = wide::widest(load);
        if let Some(&Chain { id: head, len, .. }) = self.chains[..count].get(self.end) {
            let fault = RingFault::ChainTooShort { head, len, header: header::LEN as u32 };
            // Remembered, so that it is told when the frames in front of it have gone.
            let fault = self.ring.broken(fault);
            return if self.end > 0 { Ok(()) } else { Err(fault) };
        }
        Ok(())
    }

    /// A frame of the last look; 0 is the oldest that is not completed.
    ///
    /// # Panics
    /// If `index` is not less than what [`Self::peek`] returned, less what was completed since.
    #[inline]
    pub fn frame(&self, index: usize) -> TxFrame<'_> {
        let (at, window) = (self.first + index, self.first..self.end);
        assert!(window.contains(&at), "frame {index} of {}", window.len());
        TxFrame { slot: &self.slots[at], start: None, chain: self.chains[at], chains: &self.ring.chains }
    }

    /// First bytes and length of a frame, as [`Self::frame`] has them, if its header is all zeros: what most frames are decided by.
    #[inline(always)]
    pub fn glance(&self, index: usize) -> Option<(&[u8; FIRST_BYTES], usize)> {
        let (at, window) = (self.first + index, self.first..self.end);
        assert!(window.contains(&at), "frame {index} of {}", window.len());
        let slot = &self.slots[at];
        slot.is_plain().then(|| (slot.start(), self.chains[at].len as usize - header::LEN))
    }

    /// Slots and chains of `count` frames from `first` of the last look on, and where their bytes are.
    #[inline]
    pub(super) fn window(&self, first: usize, count: usize) -> (&[Slot], &[Chain], Pieces<'_>) {
        let frames = self.first + first..self.first + first + count;
        assert!(frames.end <= self.end);
        (&self.slots[frames.clone()], &self.chains[frames], self.ring.chains.segments.pieces())
    }

    /// Returns the `count` oldest frames of the last look to the guest, in one go.
    ///
    /// # Panics
    /// If there are not that many.
    #[inline]
    pub fn complete(&mut self, count: usize) {
        let done = &self.chains[self.first..self.end][..count];
        self.ring.push_used(done.iter().map(|&chain| (chain, 0)));
        self.first += count;
        self.ring.publish();
    }

    /// Position of the first frame that is not completed: what vhost-user's `GET_VRING_BASE` asks for.
    pub fn position(&self) -> u16 {
        self.ring.position()
    }

    /// Has the driver asked to be interrupted for what was completed since the last call? Each answer is given once: a
    /// caller that delays the interrupt must remember it.
    #[inline]
    pub fn needs_interrupt(&mut self) -> bool {
        self.ring.needs_interrupt()
    }

    /// Asks the driver not to kick.
    pub fn suspend_kicks(&mut self) {
        self.ring.suspend_kicks();
    }

    /// Asks the driver to kick at the next frame behind the last look. True if there is one already: then look again.
    pub fn arm_kicks(&mut self) -> bool {
        self.ring.arm_kicks()
    }
}

/// Copies header and first bytes of each chain, each once, until one is too short to be a frame; returns how many.
struct Load<'a> {
    slots: &'a mut [Slot],
    chains: &'a [Chain],
    from: &'a Chains,
}

impl Work for Load<'_> {
    type Output = usize;

    #[inline(always)]
    fn run(self) -> usize {
        let pieces = self.from.segments.pieces();
        let mut loaded = 0;
        for (slot, chain) in self.slots.iter_mut().zip(self.chains) {
            if (chain.len as usize) < header::LEN {
                break;
            }
            if !pieces.read_start::<{ header::LEN }, HEAD>(chain.first as usize, &mut slot.bytes) {
                slot.read(self.from.buffer(*chain), chain.len as usize);
            }
            loaded += 1;
        }
        loaded
    }
}

impl Slot {
    /// Reads a chain that is short or in pieces.
    #[cold]
    fn read(&mut self, mut from: Buffer<'_>, len: usize) {
        from.read(&mut self.bytes[..len.min(HEAD)]);
    }

    /// Is the header all zeros, what the sender wrote of it?
    #[inline]
    pub(super) fn is_plain(&self) -> bool {
        self.bytes[..FIELDS] == [0; FIELDS]
    }

    /// What lies behind the header.
    #[inline(always)]
    pub(super) fn start(&self) -> &[u8; FIRST_BYTES] {
        self.bytes.last_chunk().expect("a slot is longer than the first bytes")
    }

    #[inline]
    fn header(&self) -> &[u8; header::LEN] {
        let (header, _) = self.bytes.split_first_chunk().expect("a slot is longer than a header");
        header
    }
}

/// A frame in a guest's transmit queue. Its length and header are fixed, its first bytes are a private copy; the rest lies
/// in guest memory and is read when it is copied.
#[derive(Debug, Clone, Copy)]
pub struct TxFrame<'q> {
    slot: &'q Slot,
    /// In place of the first bytes that the guest wrote.
    start: Option<&'q [u8]>,
    chain: Chain,
    chains: &'q Chains,
}

impl<'q> TxFrame<'q> {
    /// Its header as the guest wrote it, not checked against the frame.
    #[inline]
    pub fn header(&self) -> NetHeader {
        NetHeader::from_bytes(self.slot.header())
    }

    /// Length in bytes, from the Ethernet header on; possibly 0, at most [`MAX_FRAME_LEN`].
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "a frame is not a collection")]
    pub fn len(&self) -> usize {
        match self.start {
            None => self.chain.len as usize - header::LEN,
            Some(start) => start.len() + (self.chain.len as usize).saturating_sub(HEAD),
        }
    }

    /// The same frame with other first bytes, more or fewer: all that was in [`Self::first_bytes`] is replaced.
    #[inline]
    #[must_use]
    pub fn with_start<'s>(&self, start: &'s [u8]) -> TxFrame<'s>
    where
        'q: 's,
    {
        TxFrame { start: Some(start), ..*self }
    }

    /// The first [`FIRST_BYTES`] bytes, fewer if the frame is shorter. Exactly these are stored at a receiver.
    #[inline]
    pub fn first_bytes(&self) -> &'q [u8] {
        self.start.unwrap_or_else(|| &self.slot.bytes[header::LEN..HEAD.min(self.chain.len as usize)])
    }

    /// The first [`FIRST_BYTES`] bytes as the guest wrote them; what lies behind the end of a shorter frame has no meaning.
    #[inline]
    pub fn start(&self) -> &'q [u8; FIRST_BYTES] {
        self.slot.start()
    }

    /// Copies the frame, as far as `out` has room; returns how many bytes.
    pub fn copy_to(&self, out: &mut [u8]) -> usize {
        let first = self.first_bytes();
        let head = first.len().min(out.len());
        out[..head].copy_from_slice(&first[..head]);
        head + self.rest().read(&mut out[head..])
    }

    /// Writes the frame to a descriptor by one `writev`, behind a header if one is given; returns what the kernel took.
    pub fn write_to(&self, fd: BorrowedFd<'_>, header: Option<&NetHeader>) -> io::Result<usize> {
        let header = header.map(|header| header.to_bytes());
        let header = header.as_ref().map_or(&[][..], |bytes| &bytes[..]);
        self.rest().write_to(fd, [header, self.first_bytes()], usize::MAX)
    }

    /// Everything behind the first bytes.
    #[inline]
    pub(super) fn rest(&self) -> Buffer<'q> {
        if self.chain.len as usize <= HEAD {
            return Buffer::empty();
        }
        let mut buffer = self.chains.buffer(self.chain);
        buffer.skip(HEAD);
        buffer
    }
}
