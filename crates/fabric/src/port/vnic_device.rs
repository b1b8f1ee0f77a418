//! A port as front ends' sessions drive it.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use taut_api::fabric::PortId;
use taut_virtq::memory::GuestMemory;
use taut_virtq::{PositionLog, QueueConfig, RxQueue, TxQueue};

use super::Port;
use crate::vhost_user::device::{Device, Ring, StartError};
use crate::vhost_user::features;
use crate::wake::mailbox::Mailboxes;

/// A port, and the workers that are to serve it.
#[derive(Debug, Clone)]
pub struct VnicDevice {
    /// The port.
    pub port: Arc<Port>,
    /// Where its kicks are waited for.
    pub mailboxes: Arc<Mailboxes>,
}

impl Device for VnicDevice {
    fn id(&self) -> PortId {
        self.port.id
    }

    fn queues(&self) -> usize {
        self.port.queues()
    }

    fn offered(&self) -> u64 {
        features::offered(self.port.kind)
    }

    /// QEMU makes up a card's configuration space by itself.
    fn config_space(&self) -> &[u8] {
        &[]
    }

    fn runs(&self, queue: usize) -> bool {
        self.port.runs(queue)
    }

    fn start_ring(&self, queue: usize, memory: &Arc<GuestMemory>, ring: Ring) -> Result<(), StartError> {
        self.port.start_ring(queue, memory, ring, &self.mailboxes)
    }

    fn stop_ring(&self, queue: usize) -> Option<u16> {
        self.port.stop_ring(queue)
    }

    fn set_call(&self, queue: usize, call: Option<Arc<OwnedFd>>) {
        self.port.set_call(queue, call);
    }

    fn interrupt_all(&self) {
        self.port.interrupt_all();
    }

    fn position_in_memory(
        &self,
        memory: &Arc<GuestMemory>,
        queue: usize,
        config: &QueueConfig,
    ) -> Option<u16> {
        if queue.is_multiple_of(2) {
            RxQueue::new(memory, config).ok().map(|queue| queue.position())
        } else {
            TxQueue::new(memory, config).ok().map(|queue| queue.position())
        }
    }

    fn position_log(&self, queue: usize) -> Option<PositionLog> {
        self.port.counters.position_log(queue)
    }
}
