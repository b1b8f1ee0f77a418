//! A port as the device of a vhost-user session.

use std::sync::Arc;

use taut_api::fabric::PortId;
use taut_virtq::PositionLog;
use taut_virtq::device::{RxQueue, TxQueue};

use super::Port;
use super::features;
use crate::net::queue::{Direction, QueueIdx};
use crate::sys::event_fd::EventFd;
use crate::vhost_user::device::{Device, Ring, RingSetup, StartError};
use crate::wake::mailbox::Mailboxes;

/// A port, and the workers that serve it.
#[derive(Debug, Clone)]
pub struct VnicDevice {
    /// The port.
    pub port: Arc<Port>,
    /// The workers' mailboxes, whose epoll sets watch the port's kicks.
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

    /// Empty: QEMU builds the configuration space of a network card itself.
    fn config_space(&self) -> &[u8] {
        &[]
    }

    fn runs(&self, queue: QueueIdx) -> bool {
        self.port.runs(queue)
    }

    fn start_ring(&self, queue: QueueIdx, ring: Ring) -> Result<(), StartError> {
        self.port.start_ring(queue, ring, &self.mailboxes)
    }

    fn stop_ring(&self, queue: QueueIdx) -> Option<u16> {
        self.port.stop_ring(queue)
    }

    fn set_call(&self, queue: QueueIdx, call: Option<Arc<EventFd>>) {
        self.port.with_notifier(queue, |notifier| notifier.set_call(call));
    }

    fn interrupt(&self, queue: QueueIdx) {
        self.port.with_notifier(queue, |notifier| notifier.ring());
    }

    fn position_in_memory(&self, queue: QueueIdx, setup: &RingSetup) -> Option<u16> {
        match queue.direction() {
            Direction::Receive => Some(RxQueue::new(&setup.memory, &setup.config).ok()?.position()),
            Direction::Transmit => Some(TxQueue::new(&setup.memory, &setup.config).ok()?.position()),
        }
    }

    fn position_log(&self, queue: QueueIdx) -> Option<PositionLog> {
        self.port.counters.position_log(queue.index())
    }
}
