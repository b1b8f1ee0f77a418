//! A guest's transmit ring.

use std::time::Instant;

use taut_api::Coalescing;
use taut_virtq::device::TxQueue;
use taut_virtq::fault::QueueError;

use crate::moderation::{Kicks, Look};
use crate::port::frame::Failure;
use crate::port::notifier::Notifier;
use crate::sys::counters::PortBlock;
use crate::vhost_user::device::Ring;

/// A transmit ring: frames from the guest.
#[derive(Debug)]
pub struct Tx {
    queue: TxQueue,
    notifier: Notifier,
    kicks: Kicks,
}

impl Tx {
    /// Starts the ring.
    pub fn new(ring: Ring, coalescing: Coalescing) -> Result<Self, QueueError> {
        let (queue, size) = (TxQueue::new(&ring.setup.memory, &ring.setup.config)?, ring.setup.config.size);
        Ok(Self {
            queue,
            notifier: Notifier::new(ring.call, coalescing, size),
            kicks: Kicks::new(coalescing, size),
        })
    }

    /// Reads waiting frames from the ring and returns how many it has read; 0 only if none waits
    /// ([`TxQueue::peek`]). [`Self::queue`] gives access to them, the oldest first.
    #[inline]
    pub fn look(&mut self) -> Result<usize, Failure> {
        Ok(self.queue.peek()?)
    }

    /// The queue, with the frames of the last [`Self::look`].
    #[inline]
    pub fn queue(&self) -> &TxQueue {
        &self.queue
    }

    /// Returns the first `done` frames of the last look to the guest, and interrupts it if that is
    /// due.
    ///
    /// Returns the time at which an interrupt will be due.
    #[inline]
    pub fn complete(&mut self, done: usize, now: Instant, counters: &PortBlock) -> Option<Instant> {
        if done == 0 {
            return None;
        }
        self.queue.complete(done);
        self.kicks.found(done as u32);
        self.notifier.published(done, self.queue.needs_interrupt(), now, counters)
    }

    /// Notes that the last look found nothing, and decides between a kick by the guest and another
    /// look.
    #[inline]
    pub fn emptied(&mut self, now: Instant, counters: &PortBlock) -> Look {
        self.notifier.idle(now, counters);
        self.kicks.emptied(now)
    }

    /// Enables the guest's kicks. Returns `true` if frames have arrived in the meantime.
    pub fn arm(&mut self) -> bool {
        self.queue.arm_kicks()
    }

    /// Disables the guest's kicks.
    pub fn disarm(&mut self) {
        self.queue.suspend_kicks();
    }

    /// The ring's interrupt.
    pub fn notifier(&mut self) -> &mut Notifier {
        &mut self.notifier
    }

    /// Changes the moderation. The caller then has a worker look at the ring.
    pub fn moderate(&mut self, coalescing: Coalescing) {
        self.notifier.moderate(coalescing);
        self.kicks.set(coalescing);
    }

    /// Position of the first frame that has not been returned to the guest.
    pub fn position(&self) -> u16 {
        self.queue.position()
    }
}
