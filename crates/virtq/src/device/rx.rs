//! Receive queues: frames to the guest.

use std::sync::Arc;

use super::chain::{Chain, Direction};
use super::ring::Ring;
use super::tx::{FIRST_BYTES, Slot, TxFrame, TxQueue};
use super::{BURST, MAX_PARTS, QueueConfig};
use crate::fault::{QueueError, RingFault};
use crate::features;
use crate::header::{self, NetHeader};
use crate::memory::wide::{self, Work};
use crate::memory::{Buffer, GuestMemory, Pieces};

/// Most buffers for one frame; also the most that are looked at ahead. 64 KiB fit with buffers of 520 bytes.
const MAX_AHEAD: usize = 128;

/// Buffers that are looked at in one go when nobody said how many are needed.
const AHEAD: usize = 8;

/// The header of a frame for which there is nothing left to do, in one buffer.
const PLAIN: [u8; header::LEN] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];

/// What became of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// It is in the guest's buffers; the guest sees it after [`RxQueue::publish`].
    Stored,
    /// The guest has too few buffers now. Nothing has changed.
    Full,
    /// The guest's buffers can never hold this frame. Nothing has changed.
    TooLong,
}

/// Frames stored by [`RxQueue::deliver_run`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Run {
    /// How many.
    pub frames: usize,
    /// Their bytes, from the Ethernet header on.
    pub bytes: u64,
}

/// A receive queue of a guest.
#[derive(Debug)]
pub struct RxQueue {
    ring: Ring,
    mergeable: bool,
    /// Buffers that were fetched and checked: `ahead[first..end]`.
    ahead: Box<[Chain; MAX_AHEAD]>,
    first: usize,
    end: usize,
}

/// Bytes to be delivered: a slice, then guest memory.
struct Source<'a> {
    bytes: &'a [u8],
    rest: Buffer<'a>,
}

impl Source<'_> {
    /// Stores the next `len` bytes.
    #[inline]
    fn store(&mut self, into: &mut Buffer<'_>, len: usize) {
        let (now, later) = self.bytes.split_at(self.bytes.len().min(len));
        match now.first_chunk::<FIRST_BYTES>() {
            Some(bytes) if now.len() == FIRST_BYTES => into.write_array(bytes),
            _ => _ = into.write(now),
        }
        self.bytes = later;
        if len > now.len() {
            into.write_from(&mut self.rest, len - now.len());
        }
    }
}

/// The copies of [`RxQueue::deliver_run`].
struct Copies<'a> {
    slots: &'a [Slot],
    chains: &'a [Chain],
    from: Pieces<'a>,
    ahead: &'a [Chain],
    to: Pieces<'a>,
}

impl Work for Copies<'_> {
    type Output = Run;

    #[inline(always)]
    fn run(self) -> Run {
        let mut run = Run::default();
        for (number, ((slot, chain), into)) in self.slots.iter().zip(self.chains).zip(self.ahead).enumerate()
        {
            let (to, at) = (into.first as usize, chain.first as usize);
            // The buffer of the next frame, unless that will not fill as much of it.
            let next = || match (self.ahead.get(number + 1), self.chains.get(number + 1)) {
                (Some(next), Some(frame)) if frame.len >= chain.len => next.first as usize,
                _ => to,
            };
            let len = chain.len as usize;
            let simple = slot.is_plain() && chain.count == 1 && into.count == 1;
            if !simple || !self.to.copy_behind(to, (&PLAIN, slot.start()), self.from, at, len, next) {
                break;
            }
            run.frames += 1;
            run.bytes += (len - header::LEN) as u64;
        }
        run
    }
}

impl RxQueue {
    /// The device end of a queue that a driver and its front end have set up.
    pub fn new(memory: &Arc<GuestMemory>, config: &QueueConfig) -> Result<Self, QueueError> {
        let ring = Ring::new(memory, config, Direction::Receive, MAX_AHEAD + 2 * MAX_PARTS)?;
        let mergeable = config.features & features::NET_MRG_RXBUF != 0;
        Ok(Self { ring, mergeable, ahead: Box::new([Chain::default(); MAX_AHEAD]), first: 0, end: 0 })
    }

    /// Looks at the next buffers ahead of a burst of `frames` frames. Optional, as is [`Self::expect`]: what a burst for this
    /// queue does before its first [`Self::deliver`], to be faster.
    #[inline]
    pub fn prepare(&mut self, frames: usize) -> Result<(), RingFault> {
        let wanted = frames.min(BURST);
        if self.end - self.first < wanted { self.look_ahead(wanted) } else { self.ring.check() }
    }

    /// Asks for the first cache lines of the buffer `index` places from the next one, if it has been looked at. They
    /// are some way off, and only so many can be on their way: best asked for one by one, beside other work.
    #[inline(always)]
    pub fn expect(&self, index: usize) {
        if let Some(chain) = self.ahead[..self.end].get(self.first + index) {
            self.ring.chains.segments.prefetch_for_write(chain.first as usize);
        }
    }

    /// Copies frames from a transmit queue, `count` from `first` of its last look on, as long as they are of the simplest
    /// kind: plain, in one piece, and shorter than the guest's next buffer. Returns how many were stored; the one behind
    /// them is for [`Self::deliver`]. Faster behind [`Self::prepare`] and [`Self::expect`].
    #[inline]
    pub fn deliver_run(&mut self, queue: &TxQueue, first: usize, count: usize) -> Run {
        let Ok(()) = self.prepare(count) else { return Run::default() };
        let (slots, chains, from) = queue.window(first, count);
        let ahead = &self.ahead[self.first..self.end];
        let run = wide::widest(Copies { slots, chains, from, ahead, to: self.ring.chains.segments.pieces() });
        let used =
            ahead[..run.frames].iter().zip(&chains[..run.frames]).map(|(&into, chain)| (into, chain.len));
        self.ring.push_used(used);
        self.first += run.frames;
        run
    }

    /// Copies a frame from a transmit queue into the guest's next buffers, behind `header` (its `num_buffers` is set
    /// here).
    #[inline]
    pub fn deliver(&mut self, frame: &TxFrame<'_>, header: &NetHeader) -> Result<Delivery, RingFault> {
        let source = Source { bytes: frame.first_bytes(), rest: frame.rest() };
        self.store(source, frame.len(), header)
    }

    /// Copies a frame from the host's memory, likewise.
    pub fn deliver_bytes(&mut self, frame: &[u8], header: &NetHeader) -> Result<Delivery, RingFault> {
        let source = Source { bytes: frame, rest: Buffer::empty() };
        self.store(source, frame.len(), header)
    }

    #[inline]
    fn store(
        &mut self,
        mut source: Source<'_>,
        len: usize,
        header: &NetHeader,
    ) -> Result<Delivery, RingFault> {
        if self.first == self.end {
            self.look_ahead(AHEAD)?;
            if self.first == self.end {
                return Ok(Delivery::Full);
            }
            (0..self.end - self.first).for_each(|index| self.expect(index));
        }
        let chain = self.ahead[self.first];
        if (chain.len as usize) < header::LEN + len {
            return self.store_spread(source, len, header);
        }
        let mut buffer = self.ring.chains.buffer(chain);
        buffer.write_array(&NetHeader { num_buffers: 1, ..*header }.to_bytes());
        source.store(&mut buffer, len);
        self.ring.push_used(std::iter::once((chain, (header::LEN + len) as u32)));
        self.first += 1;
        Ok(Delivery::Stored)
    }

    /// A frame that is longer than the next buffer.
    fn store_spread(
        &mut self,
        mut source: Source<'_>,
        len: usize,
        header: &NetHeader,
    ) -> Result<Delivery, RingFault> {
        if !self.mergeable {
            return Ok(Delivery::TooLong);
        }
        let mut left = header::LEN + len;
        let count = match self.buffers_for(left)? {
            Ok(count) => count,
            Err(delivery) => return Ok(delivery),
        };
        let chains = &self.ahead[self.first..self.first + count];
        let mut head = header::LEN;
        for (index, &chain) in chains.iter().enumerate() {
            let mut buffer = self.ring.chains.buffer(chain);
            if index == 0 {
                buffer.write_array(&NetHeader { num_buffers: count as u16, ..*header }.to_bytes());
            }
            let written = left.min(chain.len as usize);
            source.store(&mut buffer, written - std::mem::take(&mut head));
            left -= written;
        }
        left = header::LEN + len;
        self.ring.push_used(chains.iter().map(|&chain| {
            let written = left.min(chain.len as usize);
            left -= written;
            (chain, written as u32)
        }));
        self.first += count;
        Ok(Delivery::Stored)
    }

    /// How many buffers `len` bytes need, all of them looked at.
    fn buffers_for(&mut self, len: usize) -> Result<Result<usize, Delivery>, RingFault> {
        let mut count = 0;
        let mut room = 0;
        while room < len {
            if count == MAX_AHEAD {
                return Ok(Err(Delivery::TooLong));
            }
            if self.first + count == self.end {
                self.look_ahead((count + AHEAD).min(MAX_AHEAD))?;
                if self.first + count == self.end {
                    return Ok(Err(Delivery::Full));
                }
            }
            room += self.ahead[self.first + count].len as usize;
            count += 1;
        }
        Ok(Ok(count))
    }

    /// Fetches buffers until `wanted` are ready or the guest has no more. Buffers in front of a faulty one are used
    /// first.
    fn look_ahead(&mut self, wanted: usize) -> Result<(), RingFault> {
        self.move_to_front();
        // The bound on parts keeps the segments from growing; only a driver that chops its buffers to pieces meets it.
        let room = &mut self.ahead[self.end..wanted.max(self.end)];
        let fetched = self.ring.fetch(room, MAX_AHEAD + MAX_PARTS)?;
        for chain in &room[..fetched] {
            if (chain.len as usize) < header::LEN {
                let fault =
                    RingFault::ChainTooShort { head: chain.id, len: chain.len, header: header::LEN as u32 };
                // Remembered, so that it is told when the buffers in front of it have been used.
                let fault = self.ring.broken(fault);
                return if self.first < self.end { Ok(()) } else { Err(fault) };
            }
            self.end += 1;
        }
        Ok(())
    }

    /// Makes `first` 0 again.
    fn move_to_front(&mut self) {
        if self.first == self.end {
            self.ring.chains.segments.clear();
        } else {
            self.ahead.copy_within(self.first..self.end, 0);
            let gone = self.ahead[0].first;
            self.ring.chains.segments.remove_first(gone as usize);
            for chain in &mut self.ahead[..self.end - self.first] {
                chain.first -= gone;
            }
        }
        (self.first, self.end) = (0, self.end - self.first);
    }

    /// Shows the guest everything stored since the last call.
    #[inline]
    pub fn publish(&mut self) {
        self.ring.publish();
    }

    /// Looks at the next buffer, so that its lines come here before the next frame does. For after a short burst; with long
    /// ones there is no time in between.
    #[inline]
    pub fn look_further(&mut self) {
        // A fault shows again with the next frame.
        let _ = self.prepare(1);
        self.expect(0);
    }

    /// Position of the first buffer that was not used: what vhost-user's `GET_VRING_BASE` asks for. Publish first.
    pub fn position(&self) -> u16 {
        self.ring.position()
    }

    /// Has the driver asked to be interrupted for what was published since the last call? Each answer is given once: a
    /// caller that delays the interrupt must remember it.
    #[inline]
    pub fn needs_interrupt(&mut self) -> bool {
        self.ring.needs_interrupt()
    }

    /// Asks the driver not to kick when it adds buffers.
    pub fn suspend_kicks(&mut self) {
        self.ring.suspend_kicks();
    }

    /// Asks the driver to kick when it adds a buffer, after [`Delivery::Full`]. True if it has done so already: then try
    /// again.
    pub fn arm_kicks(&mut self) -> bool {
        self.ring.arm_kicks()
    }
}
