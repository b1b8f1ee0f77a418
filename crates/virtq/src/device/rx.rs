//! Receive queues: frames to the guest.

use std::sync::Arc;

use super::chain::{Chain, QueueKind};
use super::ring::Ring;
use super::tx::{FIRST_BYTES, Slot, TxFrame, TxQueue};
use super::{BURST, MAX_PARTS};
use crate::fault::{QueueError, RingFault};
use crate::features;
use crate::header::{self, NetHeader};
use crate::memory::wide::{self, Work};
use crate::memory::{Buffer, GuestMemory, SpanView};
use crate::ring::QueueConfig;

/// Most buffers for one frame, and most buffers that are fetched ahead. 64 KiB fit with buffers of
/// 520 bytes.
const MAX_AHEAD: usize = 128;

/// Number of buffers that are fetched at once when the caller did not say how many it needs.
const AHEAD: usize = 8;

/// The header of a plain frame that is stored in one buffer: all zeros but `num_buffers`.
const PLAIN_HEADER: [u8; header::LEN] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];

/// Result of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// The frame is in the guest's buffers. The guest sees it after [`RxQueue::publish`].
    Stored,
    /// The guest has too few buffers at the moment. Nothing has changed.
    Full,
    /// The guest's buffers can never hold this frame. Nothing has changed.
    TooLong,
}

/// Frames stored by [`RxQueue::deliver_run`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Run {
    /// Number of frames.
    pub frames: usize,
    /// Sum of their lengths in bytes, from the Ethernet header on.
    pub bytes: u64,
}

/// The receive queue of a guest.
#[derive(Debug)]
pub struct RxQueue {
    ring: Ring,
    mergeable: bool,
    /// Fetched and checked buffers: `ahead[first..end]`.
    ahead: Box<[Chain; MAX_AHEAD]>,
    first: usize,
    end: usize,
}

impl RxQueue {
    /// Sets up the device end of a queue that a driver and its front end have configured.
    pub fn new(memory: &Arc<GuestMemory>, config: &QueueConfig) -> Result<Self, QueueError> {
        let ring = Ring::new(memory, config, QueueKind::Receive, MAX_AHEAD + 2 * MAX_PARTS)?;
        let mergeable = config.features & features::NET_MRG_RXBUF != 0;
        Ok(Self { ring, mergeable, ahead: Box::new([Chain::default(); MAX_AHEAD]), first: 0, end: 0 })
    }

    /// Fetches buffers ahead of a burst of `frames` frames. This and [`Self::prefetch`] are
    /// optional; they make the deliveries of the burst faster.
    #[inline]
    pub fn prepare(&mut self, frames: usize) -> Result<(), RingFault> {
        let wanted = frames.min(BURST);
        if self.end - self.first < wanted { self.look_ahead(wanted) } else { self.ring.check() }
    }

    /// Fetches buffers until `wanted` are ready or the guest has no more. Buffers before a faulty
    /// one are used first.
    fn look_ahead(&mut self, wanted: usize) -> Result<(), RingFault> {
        self.move_to_front();
        // The limit on parts keeps the spans from growing. Only drivers with very many small
        // parts reach it.
        let room = &mut self.ahead[self.end..wanted.max(self.end)];
        let fetched = self.ring.fetch(room, MAX_AHEAD + MAX_PARTS)?;
        for chain in &room[..fetched] {
            if (chain.len as usize) < header::LEN {
                let fault =
                    RingFault::ChainTooShort { head: chain.id, len: chain.len, header: header::LEN as u32 };
                // Stored, so that it is returned when the buffers before it are used.
                let fault = self.ring.stop(fault);
                return if self.first < self.end { Ok(()) } else { Err(fault) };
            }
            self.end += 1;
        }
        Ok(())
    }

    /// Moves the fetched buffers to the front, so that `first` is 0.
    fn move_to_front(&mut self) {
        if self.first == self.end {
            self.ring.chains.spans.clear();
        } else {
            self.ahead.copy_within(self.first..self.end, 0);
            let gone = self.ahead[0].first;
            self.ring.chains.spans.remove_first(gone as usize);
            for chain in &mut self.ahead[..self.end - self.first] {
                chain.first -= gone;
            }
        }
        (self.first, self.end) = (0, self.end - self.first);
    }

    /// Prefetches the first cache lines of the buffer `index` places behind the next one, if it was
    /// fetched. The processor has room for few outstanding lines, so callers should spread these
    /// calls over other work.
    #[inline(always)]
    pub fn prefetch(&self, index: usize) {
        if let Some(chain) = self.ahead[..self.end].get(self.first + index) {
            self.ring.chains.spans.prefetch_for_write(chain.first as usize);
        }
    }

    /// Copies up to `count` frames of a transmit queue's last look, from `first` on. Stops at the
    /// first frame that is not plain ([`TxQueue::peek_plain`]), at a frame or a buffer in several
    /// parts, at a frame longer than the guest's next buffer, and when the guest has no more
    /// buffers or its ring has a fault. [`Self::deliver`] handles that frame. Returns what was
    /// stored. Faster after [`Self::prepare`] and [`Self::prefetch`].
    #[inline]
    pub fn deliver_run(&mut self, queue: &TxQueue, first: usize, count: usize) -> Run {
        let Ok(()) = self.prepare(count) else { return Run::default() };
        let (slots, chains, from) = queue.window(first, count);
        let ahead = &self.ahead[self.first..self.end];
        let run = wide::widest(Copies { slots, chains, from, ahead, to: self.ring.chains.spans.view() });
        let used =
            ahead[..run.frames].iter().zip(&chains[..run.frames]).map(|(&into, chain)| (into, chain.len));
        self.ring.push_used(used);
        self.first += run.frames;
        run
    }
}

/// The copies of [`RxQueue::deliver_run`].
struct Copies<'a> {
    slots: &'a [Slot],
    chains: &'a [Chain],
    from: SpanView<'a>,
    ahead: &'a [Chain],
    to: SpanView<'a>,
}

impl Work for Copies<'_> {
    type Output = Run;

    #[inline(always)]
    fn run(self) -> Run {
        let mut run = Run::default();
        for (number, ((slot, chain), into)) in self.slots.iter().zip(self.chains).zip(self.ahead).enumerate()
        {
            let (to, at) = (into.first as usize, chain.first as usize);
            // The buffer to prefetch: that of the next frame, unless the next frame is shorter.
            let next = || match (self.ahead.get(number + 1), self.chains.get(number + 1)) {
                (Some(next), Some(frame)) if frame.len >= chain.len => next.first as usize,
                _ => to,
            };
            let len = chain.len as usize;
            let can_run = slot.is_plain() && chain.count == 1 && into.count == 1;
            if !can_run || !self.to.copy_behind(to, (&PLAIN_HEADER, slot.start()), self.from, at, len, next) {
                break;
            }
            run.frames += 1;
            run.bytes += (len - header::LEN) as u64;
        }
        run
    }
}

/// Delivery of one frame.
impl RxQueue {
    /// Copies a frame from a transmit queue into the guest's next buffers, behind `header`, whose
    /// `num_buffers` is set here.
    #[inline]
    pub fn deliver(&mut self, frame: &TxFrame<'_>, header: &NetHeader) -> Result<Delivery, RingFault> {
        let source = Source { bytes: frame.first_bytes(), rest: frame.rest() };
        self.store(source, frame.len(), header)
    }

    /// Copies a frame from this process's memory into the guest's next buffers, behind `header`.
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
            (0..self.end - self.first).for_each(|index| self.prefetch(index));
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

    /// Fetches as many buffers as `len` bytes need. Returns how many, or why there are too few.
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
}

/// Source of a delivery: a slice, followed by guest memory.
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

/// Publication, interrupts and kicks.
impl RxQueue {
    /// Makes everything that was stored since the last call visible to the guest.
    #[inline]
    pub fn publish(&mut self) {
        self.ring.publish();
    }

    /// Fetches and prefetches the next buffer before the next frame comes. Pays off after a short
    /// burst; long bursts leave no time in between.
    #[inline]
    pub fn prefetch_next(&mut self) {
        // A fault is returned again with the next frame.
        let _ = self.prepare(1);
        self.prefetch(0);
    }

    position_and_kicks!();
    interrupts!();
}
