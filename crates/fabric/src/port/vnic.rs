//! A guest's virtio-net rings.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use taut_api::fabric::DropReason;
use taut_api::fabric::counters::PortWord;
use taut_virtq::device::{Delivery, QueueConfig, Run, RxQueue, TxQueue};
use taut_virtq::fault::{QueueError, RingFault};
use taut_virtq::memory::GuestMemory;

use super::{Body, Failure, Frame, Put};
use crate::counters::PortBlock;
use crate::epoll::signal;
use crate::switch::software_offload::{Offloads, PLAIN};
use crate::vhost_user::features;

/// What a ring is started with.
#[derive(Debug)]
pub struct Ring {
    /// Where it is, and where it starts.
    pub config: QueueConfig,
    /// The guest signals this.
    pub kick: Arc<OwnedFd>,
    /// This interrupts the guest.
    pub call: Option<Arc<OwnedFd>>,
}

impl Ring {
    /// The position of a ring that nobody serves now, read from guest memory.
    pub fn position_in_memory(memory: &Arc<GuestMemory>, queue: usize, config: &QueueConfig) -> Option<u16> {
        if queue.is_multiple_of(2) {
            RxQueue::new(memory, config).ok().map(|queue| queue.position())
        } else {
            TxQueue::new(memory, config).ok().map(|queue| queue.position())
        }
    }
}

/// Why a ring cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The guest placed it badly.
    #[error(transparent)]
    Queue(#[from] QueueError),
    /// Its kick descriptor cannot be waited for.
    #[error(transparent)]
    Kick(#[from] io::Error),
}

/// The transmit ring: frames from the guest.
#[derive(Debug)]
pub struct Tx {
    queue: TxQueue,
    call: Option<Arc<OwnedFd>>,
}

impl Tx {
    /// Starts the ring.
    pub fn new(memory: &Arc<GuestMemory>, ring: Ring) -> Result<Self, QueueError> {
        Ok(Self { queue: TxQueue::new(memory, &ring.config)?, call: ring.call })
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

    /// Gives the first `done` frames of the last look back to the guest, and tells it if it wants to know.
    #[inline]
    pub fn complete(&mut self, done: usize, counters: &PortBlock) {
        if done == 0 {
            return;
        }
        self.queue.complete(done);
        if self.queue.needs_interrupt() {
            self.interrupt();
            counters.add_shared(PortWord::Interrupts, 1);
        }
    }

    /// Lets the guest kick again; `true` if something has come in the meantime.
    pub fn arm(&mut self) -> bool {
        self.queue.arm_kicks()
    }

    /// Spares the guest its kicks.
    pub fn disarm(&mut self) {
        self.queue.suspend_kicks();
    }

    /// Interrupts the guest.
    pub fn interrupt(&self) {
        if let Some(call) = &self.call {
            signal(call);
        }
    }

    /// Replaces the descriptor that interrupts the guest.
    pub fn set_call(&mut self, call: Option<Arc<OwnedFd>>) {
        self.call = call;
    }

    /// Position of the first frame that the guest has not got back.
    pub fn position(&self) -> u16 {
        self.queue.position()
    }
}

/// The receive ring: frames to the guest.
#[derive(Debug)]
pub struct Rx {
    queue: RxQueue,
    call: Option<Arc<OwnedFd>>,
    /// What the driver takes.
    pub offloads: Offloads,
    /// A kick was asked for, because there was no room.
    armed: bool,
}

impl Rx {
    /// Starts the ring.
    pub fn new(memory: &Arc<GuestMemory>, ring: Ring) -> Result<Self, QueueError> {
        let mut queue = RxQueue::new(memory, &ring.config)?;
        queue.suspend_kicks();
        let offloads = features::receives(ring.config.features);
        Ok(Self { queue, call: ring.call, offloads, armed: false })
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

    /// Shows the guest what was stored; `true` if it was interrupted for it.
    #[inline]
    pub fn publish(&mut self) -> bool {
        self.queue.publish();
        let due = self.queue.needs_interrupt();
        if due {
            self.interrupt();
        }
        due
    }

    /// Interrupts the guest.
    pub fn interrupt(&self) {
        if let Some(call) = &self.call {
            signal(call);
        }
    }

    /// Replaces the descriptor that interrupts the guest.
    pub fn set_call(&mut self, call: Option<Arc<OwnedFd>>) {
        self.call = call;
    }

    /// Position of the first buffer that the guest has not got back.
    pub fn position(&self) -> u16 {
        self.queue.position()
    }
}
