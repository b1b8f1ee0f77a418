//! What a session drives: a vNIC's port, or a VMCI device.

use std::fmt::Debug;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use taut_api::fabric::PortId;
use taut_virtq::fault::QueueError;
use taut_virtq::memory::GuestMemory;
use taut_virtq::{PositionLog, QueueConfig};

use super::features;

/// A device with virtqueues, apart from how its front end tells about them. Only the control thread calls it.
pub trait Device: Debug + Send + Sync {
    /// Its number.
    fn id(&self) -> PortId;

    /// Queues that it has. Even indices receive, odd ones transmit (virtio 1.2, 5.1.2 and 5.10.2).
    fn queues(&self) -> usize;

    /// virtio features offered.
    fn offered(&self) -> u64;

    /// Protocol features offered.
    fn protocol(&self) -> u64 {
        features::protocol(self.config_space())
    }

    /// The configuration space that front ends ask for; empty if they know it by themselves.
    fn config_space(&self) -> &[u8];

    /// Does anything serve this queue?
    fn runs(&self, queue: usize) -> bool;

    /// Serves a ring from now on; one that runs at its place is stopped before.
    fn start_ring(&self, queue: usize, memory: &Arc<GuestMemory>, ring: Ring) -> Result<(), StartError>;

    /// Stops whatever serves a queue; everything delivered is published before. When it returns, nothing touches the ring's memory
    /// any more. A ring that ran tells its position.
    fn stop_ring(&self, queue: usize) -> Option<u16>;

    /// Replaces the descriptor by which a ring that runs interrupts the guest.
    fn set_call(&self, queue: usize, call: Option<Arc<OwnedFd>>);

    /// Interrupts the guest once per ring: whoever served the rings before may have owed it that.
    fn interrupt_all(&self);

    /// The position of a ring that has run and that nobody serves now, read from guest memory.
    fn position_in_memory(
        &self,
        memory: &Arc<GuestMemory>,
        queue: usize,
        config: &QueueConfig,
    ) -> Option<u16>;

    /// Where a packed ring's position is written down.
    fn position_log(&self, queue: usize) -> Option<PositionLog>;

    /// Its front end is gone, and the guest with it; its queues are stopped. What it has begun with others is over.
    fn gone(&self) {}

    /// Does anything pass both ways?
    fn is_up(&self) -> bool {
        (0..self.queues() / 2).any(|pair| self.runs(2 * pair) && self.runs(2 * pair + 1))
    }

    /// Stops all queues.
    fn stop(&self) {
        for queue in 0..self.queues() {
            self.stop_ring(queue);
        }
    }
}

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
