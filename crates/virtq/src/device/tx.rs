//! Transmit queues: frames from the guest.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::ring::{Chain, Direction, Ring};
use super::{BURST, MAX_FRAME_LEN, MAX_PARTS, QueueConfig};
use crate::fault::{QueueError, RingFault};
use crate::header::{self, NetHeader};
use crate::memory::{Buffer, GuestMemory};

/// Bytes of a frame that are copied when it is looked at.
pub const FIRST_BYTES: usize = 64;

/// A transmit queue of a guest.
#[derive(Debug)]
pub struct TxQueue {
    ring: Ring,
    slots: Box<[Slot; BURST]>,
    /// The window: slots `first..end` hold frames that have been looked at and not completed.
    first: usize,
    end: usize,
}

/// A frame that has been looked at.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
struct Slot {
    first_bytes: [u8; FIRST_BYTES],
    header: [u8; header::LEN],
    chain: Chain,
}

impl TxQueue {
    /// The device end of a queue that a driver and its front end have set up.
    pub fn new(memory: &Arc<GuestMemory>, config: &QueueConfig) -> Result<Self, QueueError> {
        let most = (header::LEN + MAX_FRAME_LEN) as u64;
        let ring = Ring::new(memory, config, Direction::Transmit(most), BURST + 2 * MAX_PARTS)?;
        let empty = Slot { first_bytes: [0; FIRST_BYTES], header: [0; header::LEN], chain: Chain::default() };
        Ok(Self { ring, slots: Box::new([empty; BURST]), first: 0, end: 0 })
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

    fn refill(&mut self) -> Result<(), RingFault> {
        (self.first, self.end) = (0, 0);
        self.ring.segments.clear();
        let count = usize::from(self.ring.available()?).min(BURST);
        for slot in &mut self.slots[..count] {
            match slot.load(&mut self.ring) {
                Ok(()) => self.end += 1,
                Err(_) if self.end > 0 => break,
                Err(fault) => return Err(self.ring.broken(fault)),
            }
            if self.ring.segments.len() > BURST + MAX_PARTS {
                break;
            }
        }
        Ok(())
    }

    /// A frame of the last look; 0 is the oldest that is not completed.
    ///
    /// # Panics
    /// If `index` is not less than what [`Self::peek`] returned, less what was completed since.
    #[inline]
    pub fn frame(&self, index: usize) -> TxFrame<'_> {
        TxFrame { slot: &self.slots[self.first..self.end][index], ring: &self.ring }
    }

    /// Returns the `count` oldest frames of the last look to the guest, in one go.
    ///
    /// # Panics
    /// If there are not that many.
    #[inline]
    pub fn complete(&mut self, count: usize) {
        for slot in &self.slots[self.first..self.end][..count] {
            self.ring.push_used(slot.chain.head, 0);
        }
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

impl Slot {
    /// Fetches a chain and copies header and first bytes, each once.
    #[inline]
    fn load(&mut self, ring: &mut Ring) -> Result<(), RingFault> {
        let chain = ring.fetch()?;
        if (chain.len as usize) < header::LEN {
            let header = header::LEN as u32;
            return Err(RingFault::ChainTooShort { head: chain.head, len: chain.len, header });
        }
        let mut buffer = ring.segments.buffer(chain.first as usize, chain.count.into());
        buffer.read_array(&mut self.header);
        let len = chain.len as usize - header::LEN;
        if len >= FIRST_BYTES {
            buffer.read_array(&mut self.first_bytes);
        } else {
            buffer.read(&mut self.first_bytes[..len]);
        }
        self.chain = chain;
        Ok(())
    }
}

/// A frame in a guest's transmit queue. Its length and header are fixed, its first bytes are a private copy; the rest lies
/// in guest memory and is read when it is copied.
#[derive(Debug, Clone, Copy)]
pub struct TxFrame<'q> {
    slot: &'q Slot,
    ring: &'q Ring,
}

impl<'q> TxFrame<'q> {
    /// Its header as the guest wrote it, not checked against the frame.
    #[inline]
    pub fn header(&self) -> NetHeader {
        NetHeader::from_bytes(&self.slot.header)
    }

    /// Is the header all zeros: nothing offloaded, nothing to check? (The most frequent case, answered cheaply.)
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.slot.header[..10] == [0; 10]
    }

    /// Length in bytes, from the Ethernet header on; possibly 0, at most [`MAX_FRAME_LEN`].
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "a frame is not a collection")]
    pub fn len(&self) -> usize {
        self.slot.chain.len as usize - header::LEN
    }

    /// The first [`FIRST_BYTES`] bytes, fewer if the frame is shorter. Exactly these are stored at a receiver.
    #[inline]
    pub fn first_bytes(&self) -> &'q [u8] {
        &self.slot.first_bytes[..self.len().min(FIRST_BYTES)]
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
        self.rest().write_to(fd, [header, self.first_bytes()])
    }

    /// Everything behind the first bytes.
    #[inline]
    pub(super) fn rest(&self) -> Buffer<'q> {
        let Chain { first, count, len, .. } = self.slot.chain;
        if len as usize <= header::LEN + FIRST_BYTES {
            return Buffer::empty();
        }
        let mut buffer = self.ring.segments.buffer(first as usize, count.into());
        buffer.skip(header::LEN + FIRST_BYTES);
        buffer
    }
}
