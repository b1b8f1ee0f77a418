//! The device that a session drives: a vNIC's port or a vsock device.

use std::fmt::Debug;
use std::io;
use std::sync::Arc;

use taut_api::fabric::{ForeignFd, PortId};
use taut_virtq::fault::QueueError;
use taut_virtq::memory::GuestMemory;
use taut_virtq::{PositionLog, QueueConfig};

use super::features;
use crate::net::queue::{PairIdx, QueueIdx};
use crate::sys::event_fd::EventFd;

/// A device with virtqueues, independent of how its front end describes them.
///
/// Only the control thread calls these methods.
pub trait Device: Debug + Send + Sync {
    /// The device's port number.
    fn id(&self) -> PortId;

    /// Number of queues, both directions together.
    fn queues(&self) -> usize;

    /// The virtio features that the device offers.
    fn offered(&self) -> u64;

    /// The vhost-user protocol features that the device offers.
    fn protocol(&self) -> u64 {
        features::protocol(self.config_space())
    }

    /// The configuration space that front ends read; empty if the front end builds its own.
    fn config_space(&self) -> &[u8];

    /// Tells whether the queue is running.
    fn runs(&self, queue: QueueIdx) -> bool;

    /// Starts a queue. If the queue is running already, the running ring is stopped first.
    fn start_ring(&self, queue: QueueIdx, ring: Ring) -> Result<(), StartError>;

    /// Stops a queue after publishing everything that was delivered, and returns its position.
    ///
    /// When this returns, nothing accesses the ring's memory any more. The result is `None` if the
    /// queue was not running.
    fn stop_ring(&self, queue: QueueIdx) -> Option<u16>;

    /// Replaces the descriptor by which a running queue interrupts the guest.
    fn set_call(&self, queue: QueueIdx, call: Option<Arc<EventFd>>);

    /// Interrupts the guest for one queue, whether or not there is anything new.
    fn interrupt(&self, queue: QueueIdx);

    /// Reads the position of a stopped queue from guest memory; `None` if the ring is unusable.
    fn position_in_memory(&self, queue: QueueIdx, setup: &RingSetup) -> Option<u16>;

    /// The place in the counters file where a packed ring records its position.
    fn position_log(&self, _queue: QueueIdx) -> Option<PositionLog> {
        None
    }

    /// Ends everything that the guest began with others: its front end is gone.
    ///
    /// The queues have been stopped before.
    fn gone(&self) {}

    /// Tells whether both queues of any pair are running.
    fn is_up(&self) -> bool {
        PairIdx::all(self.queues() / 2)
            .any(|pair| self.runs(QueueIdx::receive(pair)) && self.runs(QueueIdx::transmit(pair)))
    }

    /// Stops all queues.
    fn stop(&self) {
        for queue in QueueIdx::all(self.queues()) {
            self.stop_ring(queue);
        }
    }
}

/// Location of a ring: the guest's memory, and the ring's addresses and features in it.
#[derive(Debug)]
pub struct RingSetup {
    /// The guest's memory.
    pub memory: Arc<GuestMemory>,
    /// Addresses, size, features and starting position.
    pub config: QueueConfig,
}

/// A ring to be started.
#[derive(Debug)]
pub struct Ring {
    /// Location and starting position.
    pub setup: RingSetup,
    /// The event descriptor that the guest signals when it adds buffers.
    pub kick: Arc<ForeignFd>,
    /// The event descriptor that interrupts the guest; `None` if the guest polls.
    pub call: Option<Arc<EventFd>>,
}

/// Reasons why a ring cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The guest's driver placed the ring badly.
    #[error(transparent)]
    Queue(#[from] QueueError),
    /// The kernel cannot watch the kick descriptor.
    #[error(transparent)]
    Kick(#[from] io::Error),
}
