//! A guest's receive ring.

use std::time::Instant;

use taut_api::Coalescing;
use taut_api::fabric::DropReason;
use taut_virtq::device::{Delivery, Run, RxQueue, TxQueue};
use taut_virtq::fault::{QueueError, RingFault};

use crate::net::software_offload::{NO_OFFLOADS, Offloads};
use crate::port::features;
use crate::port::frame::{Body, Frame, Put};
use crate::port::notifier::Notifier;
use crate::sys::counters::PortBlock;
use crate::vhost_user::device::Ring;

/// Bursts shorter than this leave time to prefetch the next buffers.
const SHORT_BURST: u64 = 8;

/// A receive ring: frames to the guest.
#[derive(Debug)]
pub struct Rx {
    queue: RxQueue,
    notifier: Notifier,
    /// The offloads that the driver accepts.
    pub offloads: Offloads,
    /// The guest's kick is enabled because there was no room.
    armed: bool,
}

impl Rx {
    /// Starts the ring.
    pub fn new(ring: Ring, coalescing: Coalescing) -> Result<Self, QueueError> {
        let config = &ring.setup.config;
        let mut queue = RxQueue::new(&ring.setup.memory, config)?;
        queue.suspend_kicks();
        let offloads = features::receives(config.features);
        let notifier = Notifier::new(ring.call, coalescing, config.size);
        Ok(Self { queue, notifier, offloads, armed: false })
    }

    /// Reads the buffers for this many frames. A fault is reported with the first frame delivered.
    #[inline]
    pub fn prepare(&mut self, frames: usize) {
        let _ = self.queue.prepare(frames);
    }

    /// Prefetches the buffer of the `index`-th frame from now.
    #[inline(always)]
    pub fn prefetch(&self, index: usize) {
        self.queue.prefetch(index);
    }

    /// Stores up to `count` frames of another guest's last look, from frame `first` on, as long as
    /// they need no offload work.
    #[inline]
    pub fn put_run(&mut self, queue: &TxQueue, first: usize, count: usize) -> Run {
        let run = self.queue.deliver_run(queue, first, count);
        if run.frames > 0 && self.armed {
            self.queue.suspend_kicks();
            self.armed = false;
        }
        run
    }

    /// Stores a frame whose offloads the driver accepts.
    #[inline]
    pub fn put(&mut self, frame: &Frame<'_>) -> Put {
        self.store(|queue| match frame.body {
            Body::Guest(body) => queue.deliver(body, &frame.header),
            Body::Host(bytes) => queue.deliver_bytes(bytes, &frame.header),
        })
    }

    /// Stores a finished frame: one without offloads.
    pub fn put_bytes(&mut self, bytes: &[u8]) -> Put {
        self.store(|queue| queue.deliver_bytes(bytes, &NO_OFFLOADS))
    }

    #[inline]
    fn store(&mut self, mut deliver: impl FnMut(&mut RxQueue) -> Result<Delivery, RingFault>) -> Put {
        loop {
            match deliver(&mut self.queue) {
                Ok(Delivery::Stored) => {
                    if self.armed {
                        self.queue.suspend_kicks();
                        self.armed = false;
                    }
                    return Put::Done;
                }
                Ok(Delivery::TooLong) => return Put::Refused(DropReason::BufferTooSmall),
                Ok(Delivery::Full) => {
                    // Try again while the guest adds buffers, even if too few for this frame. The
                    // ring's size bounds the loop.
                    self.armed = true;
                    if !self.queue.arm_kicks() {
                        return Put::NotNow(DropReason::RingFull);
                    }
                }
                Err(fault) => return Put::Failed(fault.into()),
            }
        }
    }

    /// Makes `frames` stored frames visible to the guest, and interrupts it if that is due.
    ///
    /// Returns the time at which an interrupt will be due.
    #[inline]
    pub fn publish(&mut self, frames: u64, now: Instant, counters: &PortBlock) -> Option<Instant> {
        let later = if frames == 0 {
            self.notifier.due(now, counters)
        } else {
            self.queue.publish();
            let later = self.notifier.published(frames as usize, self.queue.needs_interrupt(), now, counters);
            if frames < SHORT_BURST {
                self.queue.prefetch_next();
            }
            later
        };
        if later.is_some() && self.armed {
            // The guest must make room and can learn that only by an interrupt.
            self.notifier.release(now, counters);
            return None;
        }
        later
    }

    /// The ring's interrupt.
    pub fn notifier(&mut self) -> &mut Notifier {
        &mut self.notifier
    }

    /// Position of the first buffer that has not been returned to the guest.
    pub fn position(&self) -> u16 {
        self.queue.position()
    }
}
