//! A guest's virtio-net rings.

use std::sync::Arc;
use std::time::Instant;

use taut_api::Coalescing;
use taut_api::fabric::DropReason;
use taut_virtq::device::{Delivery, Run, RxQueue, TxQueue};
use taut_virtq::fault::{QueueError, RingFault};
use taut_virtq::memory::GuestMemory;

use super::frame::{Body, Failure, Frame, Put};
use super::notifier::Notifier;
use crate::moderation::{Kicks, Look};
use crate::net::software_offload::{Offloads, PLAIN};
use crate::sys::counters::PortBlock;
use crate::vhost_user::device::Ring;
use crate::vhost_user::features;

/// The transmit ring: frames from the guest.
#[derive(Debug)]
pub struct Tx {
    queue: TxQueue,
    notifier: Notifier,
    kicks: Kicks,
}

impl Tx {
    /// Starts the ring.
    pub fn new(memory: &Arc<GuestMemory>, ring: Ring, coalescing: Coalescing) -> Result<Self, QueueError> {
        let (queue, size) = (TxQueue::new(memory, &ring.config)?, ring.config.size);
        Ok(Self {
            queue,
            notifier: Notifier::new(ring.call, coalescing, size),
            kicks: Kicks::new(coalescing, size),
        })
    }

    /// Looks at the frames that wait and tells how many there are; [`Self::queue`] gives them, the oldest first.
    #[inline]
    pub fn look(&mut self) -> Result<usize, Failure> {
        Ok(self.queue.peek()?)
    }

    /// The queue, for the frames of the last look.
    #[inline]
    pub fn queue(&self) -> &TxQueue {
        &self.queue
    }

    /// Gives the first `done` frames of the last look back to the guest, and interrupts it if it wants to know; tells
    /// when it is to be told otherwise.
    #[inline]
    pub fn complete(&mut self, done: usize, now: Instant, counters: &PortBlock) -> Option<Instant> {
        if done == 0 {
            return None;
        }
        self.queue.complete(done);
        self.kicks.found(done as u32);
        self.notifier.published(done, self.queue.needs_interrupt(), now, counters)
    }

    /// The last look found nothing. May the guest kick, or when is it looked at again?
    #[inline]
    pub fn emptied(&mut self, now: Instant, counters: &PortBlock) -> Look {
        self.notifier.idle(now, counters);
        self.kicks.emptied(now)
    }

    /// Lets the guest kick again; `true` if something has come in the meantime.
    pub fn arm(&mut self) -> bool {
        self.queue.arm_kicks()
    }

    /// Spares the guest its kicks.
    pub fn disarm(&mut self) {
        self.queue.suspend_kicks();
    }

    /// What interrupts the guest.
    pub fn notifier(&mut self) -> &mut Notifier {
        &mut self.notifier
    }

    /// Another moderation; the ring is to be looked at, soon.
    pub fn moderate(&mut self, coalescing: Coalescing) {
        self.notifier.moderate(coalescing);
        self.kicks.set(coalescing);
    }

    /// Position of the first frame that the guest has not got back.
    pub fn position(&self) -> u16 {
        self.queue.position()
    }
}

/// Frames of a burst after which there is time to look at the next buffer.
const SHORT_BURST: u64 = 8;

/// The receive ring: frames to the guest.
#[derive(Debug)]
pub struct Rx {
    queue: RxQueue,
    notifier: Notifier,
    /// What the driver takes.
    pub offloads: Offloads,
    /// A kick was asked for, because there was no room.
    armed: bool,
}

impl Rx {
    /// Starts the ring.
    pub fn new(memory: &Arc<GuestMemory>, ring: Ring, coalescing: Coalescing) -> Result<Self, QueueError> {
        let mut queue = RxQueue::new(memory, &ring.config)?;
        queue.suspend_kicks();
        let offloads = features::receives(ring.config.features);
        let notifier = Notifier::new(ring.call, coalescing, ring.config.size);
        Ok(Self { queue, notifier, offloads, armed: false })
    }

    /// Looks at the buffers for so many frames. A fault shows again with the first of them.
    #[inline]
    pub fn prepare(&mut self, frames: usize) {
        let _ = self.queue.prepare(frames);
    }

    /// Prefetches the first cache lines of the buffer for the frame `index` places from the next one.
    #[inline(always)]
    pub fn prefetch(&self, index: usize) {
        self.queue.prefetch(index);
    }

    /// Stores `count` frames from `first` of another guest's last look on, as many in a row as need nothing done to them.
    #[inline]
    pub fn put_run(&mut self, queue: &TxQueue, first: usize, count: usize) -> Run {
        let run = self.queue.deliver_run(queue, first, count);
        if run.frames > 0 && self.armed {
            self.queue.suspend_kicks();
            self.armed = false;
        }
        run
    }

    /// Stores a frame as it is.
    #[inline]
    pub fn put(&mut self, frame: &Frame<'_>) -> Put {
        self.store(|queue| match frame.body {
            Body::Guest(body) => queue.deliver(body, &frame.header),
            Body::Host(bytes) => queue.deliver_bytes(bytes, &frame.header),
        })
    }

    /// Stores a finished frame.
    pub fn put_bytes(&mut self, bytes: &[u8]) -> Put {
        self.store(|queue| queue.deliver_bytes(bytes, &PLAIN))
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
                    // Each time anew: some buffers may have come, but too few. A ring ends, so this does as well.
                    self.armed = true;
                    if !self.queue.arm_kicks() {
                        return Put::NotNow(DropReason::RingFull);
                    }
                }
                Err(fault) => return Put::Failed(fault.into()),
            }
        }
    }

    /// Shows the guest the `frames` frames that were stored, and interrupts it if that is due; tells when it will be due
    /// otherwise.
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
            // It must make room, and cannot know.
            self.notifier.release(now, counters);
            return None;
        }
        later
    }

    /// What interrupts the guest.
    pub fn notifier(&mut self) -> &mut Notifier {
        &mut self.notifier
    }

    /// Position of the first buffer that the guest has not got back.
    pub fn position(&self) -> u16 {
        self.queue.position()
    }
}
