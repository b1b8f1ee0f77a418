//! Transmit queues: frames from the guest.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::chain::{Chain, Chains, QueueKind};
use super::ring::Ring;
use super::{BURST, MAX_FRAME_LEN, MAX_PARTS};
use crate::fault::{QueueError, RingFault};
use crate::header::{self, NetHeader};
use crate::memory::prefetch::LINE;
use crate::memory::wide::{self, Work};
use crate::memory::{Buffer, GuestMemory, SpanView, messages};
use crate::ring::QueueConfig;

/// Number of bytes that [`TxQueue::peek`] copies of each frame.
pub const FIRST_BYTES: usize = 64;

/// Number of bytes of header and first bytes together.
pub(super) const HEAD: usize = header::LEN + FIRST_BYTES;

/// Bytes of the header without `num_buffers`, which has no meaning in a transmit queue.
const FIELDS: usize = 10;

/// Bytes between the start of a slot and its header, so that the first bytes are a cache line of
/// their own.
const GAP: usize = LINE - header::LEN;

/// The transmit queue of a guest.
#[derive(Debug)]
pub struct TxQueue {
    ring: Ring,
    slots: Box<[Slot; BURST]>,
    chains: Box<[Chain; BURST]>,
    /// Slots `first..end` hold the frames that were looked at and are not completed.
    first: usize,
    end: usize,
}

/// Header and first bytes of a frame, copied once.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Slot {
    gap: [u8; GAP],
    bytes: [u8; HEAD],
}

impl TxQueue {
    /// Sets up the device end of a queue that a driver and its front end have configured.
    pub fn new(memory: &Arc<GuestMemory>, config: &QueueConfig) -> Result<Self, QueueError> {
        let most = (header::LEN + MAX_FRAME_LEN) as u64;
        let ring = Ring::new(memory, config, QueueKind::Transmit(most), BURST + 2 * MAX_PARTS)?;
        Ok(Self {
            ring,
            slots: Box::new([Slot { gap: [0; GAP], bytes: [0; HEAD] }; BURST]),
            chains: Box::new([Chain::default(); BURST]),
            first: 0,
            end: 0,
        })
    }

    /// Looks at the waiting frames, at most [`BURST`], and returns how many there are. In a packed
    /// ring, there may be more: a look returns at most twice as many as the last one, or 4. The
    /// first has no such limit. 0 always means that none waits.
    ///
    /// [`Self::frame`] gives access to the frames. While frames of the last look are not completed,
    /// only those are returned and nothing is read from the guest.
    ///
    /// If a frame is faulty, the frames before it are returned; the next look returns the fault.
    #[inline]
    pub fn peek(&mut self) -> Result<usize, RingFault> {
        if self.first == self.end {
            self.refill()?;
        }
        Ok(self.end - self.first)
    }

    /// Fetches the next burst.
    #[inline]
    fn refill(&mut self) -> Result<(), RingFault> {
        (self.first, self.end) = (0, 0);
        self.ring.chains.spans.clear();
        let count = self.ring.fetch(&mut self.chains[..], BURST + MAX_PARTS)?;
        if count == 0 {
            return Ok(());
        }
        let load =
            Load { slots: &mut self.slots[..count], chains: &self.chains[..count], from: &self.ring.chains };
        self.end = wide::widest(load);
        if let Some(&Chain { id: head, len, .. }) = self.chains[..count].get(self.end) {
            let fault = RingFault::ChainTooShort { head, len, header: header::LEN as u32 };
            // Stored, so that it is returned when the frames before it are completed.
            let fault = self.ring.stop(fault);
            return if self.end > 0 { Ok(()) } else { Err(fault) };
        }
        Ok(())
    }
}

/// Copies header and first bytes of each chain once, until a chain is too short to be a frame.
/// Returns the number of chains copied.
struct Load<'a> {
    slots: &'a mut [Slot],
    chains: &'a [Chain],
    from: &'a Chains,
}

impl Work for Load<'_> {
    type Output = usize;

    #[inline(always)]
    fn run(self) -> usize {
        let spans = self.from.spans.view();
        let mut loaded = 0;
        for (slot, chain) in self.slots.iter_mut().zip(self.chains) {
            if (chain.len as usize) < header::LEN {
                break;
            }
            if !spans.read_start::<{ header::LEN }, HEAD>(chain.first as usize, &mut slot.bytes) {
                slot.read(self.from.buffer(*chain), chain.len as usize);
            }
            loaded += 1;
        }
        loaded
    }
}

impl Slot {
    /// Reads the start of a chain that is short or in several parts.
    #[cold]
    fn read(&mut self, mut from: Buffer<'_>, len: usize) {
        from.read(&mut self.bytes[..len.min(HEAD)]);
    }

    /// Tells whether the frame is plain: all header fields that the sender writes are zero.
    #[inline]
    pub(super) fn is_plain(&self) -> bool {
        self.bytes[..FIELDS] == [0; FIELDS]
    }

    /// The bytes behind the header.
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

/// The frames of the last look.
impl TxQueue {
    /// A frame of the last look. Index 0 is the oldest one that is not completed.
    ///
    /// # Panics
    /// If there is no such frame: [`Self::peek`] returned fewer, or too many were completed since.
    #[inline]
    pub fn frame(&self, index: usize) -> TxFrame<'_> {
        let (at, window) = (self.first + index, self.first..self.end);
        assert!(window.contains(&at), "frame {index} of {}", window.len());
        TxFrame { slot: &self.slots[at], start: None, chain: self.chains[at], chains: &self.ring.chains }
    }

    /// First bytes and length of a plain frame; `None` for any other. A frame is plain if its
    /// header asks for no offload: all fields that the sender writes are zero. The first bytes
    /// suffice to forward most frames.
    ///
    /// # Panics
    /// As [`Self::frame`].
    #[inline(always)]
    pub fn peek_plain(&self, index: usize) -> Option<(&[u8; FIRST_BYTES], usize)> {
        let (at, window) = (self.first + index, self.first..self.end);
        assert!(window.contains(&at), "frame {index} of {}", window.len());
        let slot = &self.slots[at];
        slot.is_plain().then(|| (slot.start(), self.chains[at].len as usize - header::LEN))
    }

    /// Sends frames of the last look to a socket, from frame `first` on and one for each of
    /// `heads`, by as few system calls as possible. Each frame is a message: its head, and behind
    /// that what follows the frame's first bytes.
    ///
    /// `after` gets the number of frames that a system call has sent, or the error with which the
    /// kernel refused the next frame. That frame is passed over; nothing more is sent once `after`
    /// returns `false`. The kernel reads guest memory, which this queue keeps mapped: a front end
    /// that changes its memory table gets new queues.
    ///
    /// # Panics
    /// As [`Self::frame`], and if a frame is [scattered](TxFrame::is_scattered).
    pub fn send_run<H: AsRef<[u8]>>(
        &self,
        first: usize,
        heads: &[H],
        socket: BorrowedFd<'_>,
        after: impl FnMut(io::Result<usize>) -> bool,
    ) {
        let frames = (first..).map(|index| self.frame(index).rest());
        messages::send(socket, heads.iter().map(AsRef::as_ref).zip(frames), after);
    }

    /// Slots, chains and memory of `count` frames of the last look, from `first` on.
    #[inline]
    pub(super) fn window(&self, first: usize, count: usize) -> (&[Slot], &[Chain], SpanView<'_>) {
        let frames = self.first + first..self.first + first + count;
        assert!(frames.end <= self.end);
        (&self.slots[frames.clone()], &self.chains[frames], self.ring.chains.spans.view())
    }

    /// Returns the `count` oldest frames of the last look to the guest and publishes that.
    ///
    /// # Panics
    /// If there are fewer.
    #[inline]
    pub fn complete(&mut self, count: usize) {
        let done = &self.chains[self.first..self.end][..count];
        self.ring.push_used(done.iter().map(|&chain| (chain, 0)));
        self.first += count;
        self.ring.publish();
    }

    position_and_kicks!();
    interrupts!();
}

/// A frame in a guest's transmit queue. Length and header are fixed and the first bytes are a
/// private copy. The rest lies in guest memory and is read when it is copied.
#[derive(Debug, Clone, Copy)]
pub struct TxFrame<'q> {
    slot: &'q Slot,
    /// Replacement for the first bytes that the guest wrote.
    start: Option<&'q [u8]>,
    chain: Chain,
    chains: &'q Chains,
}

impl<'q> TxFrame<'q> {
    /// The header as the guest wrote it, not checked against the frame.
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

    /// The same frame with [`Self::first_bytes`] replaced by `start`, which may be longer or
    /// shorter.
    #[inline]
    #[must_use]
    pub fn with_start<'s>(&self, start: &'s [u8]) -> TxFrame<'s>
    where
        'q: 's,
    {
        TxFrame { start: Some(start), ..*self }
    }

    /// The first [`FIRST_BYTES`] bytes, fewer if the frame is shorter. A receiver gets exactly
    /// these.
    #[inline]
    pub fn first_bytes(&self) -> &'q [u8] {
        self.start.unwrap_or_else(|| &self.slot.bytes[header::LEN..HEAD.min(self.chain.len as usize)])
    }

    /// The first [`FIRST_BYTES`] bytes as the guest wrote them. Bytes behind the end of a shorter
    /// frame have no meaning.
    #[inline]
    pub fn start(&self) -> &'q [u8; FIRST_BYTES] {
        self.slot.start()
    }

    /// Copies as much of the frame as `out` has room for. Returns the number of bytes.
    pub fn copy_to(&self, out: &mut [u8]) -> usize {
        let first = self.first_bytes();
        let head = first.len().min(out.len());
        out[..head].copy_from_slice(&first[..head]);
        head + self.rest().read(&mut out[head..])
    }

    /// Writes the frame to a file descriptor by one `writev`, behind `prefix`. Returns the number
    /// of bytes that the kernel took.
    pub fn write_to(&self, fd: BorrowedFd<'_>, prefix: &[u8]) -> io::Result<usize> {
        self.rest().write_to(fd, [prefix, self.first_bytes()], usize::MAX)
    }

    /// Tells whether the frame lies in too many pieces for [`TxQueue::send_run`]. Linux sends no
    /// such frames by default (`CONFIG_MAX_SKB_FRAGS`).
    #[inline]
    pub fn is_scattered(&self) -> bool {
        usize::from(self.chain.count) > messages::MOST_PIECES
    }

    /// The bytes behind the first ones.
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
