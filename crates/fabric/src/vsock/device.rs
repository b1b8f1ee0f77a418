//! A vsock device as a front end's session drives it.

use std::sync::Arc;

use taut_api::fabric::PortId;
use taut_virtq::device::socket::{RING_FEATURES, SocketRx, SocketTx};
use taut_virtq::features;

use super::engine::VsockSwitch;
use super::proto::GuestIdx;
use super::thread::Shared;
use crate::net::queue::{Direction, QueueIdx};
use crate::sys::event_fd::EventFd;
use crate::vhost_user::device::{Device, Ring, RingSetup, StartError};

/// Feature bits of the device (virtio 1.2, 5.10.3): `SOCK_STREAM` and `SOCK_SEQPACKET`.
const SOCKET_FEATURES: u64 = 1 << 0 | 1 << 1;

/// Receive and transmit. The event queue is the front end's.
const QUEUES: usize = 2;

/// A device of the switch.
#[derive(Debug)]
pub(super) struct VsockDevice {
    shared: Arc<Shared>,
    id: PortId,
    /// The configuration space (virtio 1.2, 5.10.4): the guest's context ID.
    config_space: [u8; 8],
}

impl VsockDevice {
    /// The device of a port, if it is configured.
    pub(super) fn find(shared: &Arc<Shared>, id: PortId) -> Option<Self> {
        let switch = shared.enter();
        let guest = switch.guests.by_id(id)?;
        let cid = switch.guests.devices[guest].as_ref()?.config.cid;
        let config_space = u64::from(cid.0).to_le_bytes();
        Some(Self { shared: Arc::clone(shared), id, config_space })
    }

    /// Runs `action` on the device, if it is still there, and has the thread look at it.
    fn with<T>(&self, action: impl FnOnce(&mut VsockSwitch, GuestIdx) -> T) -> Option<T> {
        let mut switch = self.shared.enter();
        let guest = switch.guests.by_id(self.id)?;
        let done = action(&mut switch, guest);
        drop(switch);
        self.shared.waker.wake();
        Some(done)
    }
}

impl Device for VsockDevice {
    fn id(&self) -> PortId {
        self.id
    }

    fn queues(&self) -> usize {
        QUEUES
    }

    fn offered(&self) -> u64 {
        RING_FEATURES | SOCKET_FEATURES | features::PROTOCOL_FEATURES
    }

    fn config_space(&self) -> &[u8] {
        &self.config_space
    }

    fn runs(&self, queue: QueueIdx) -> bool {
        let switch = self.shared.enter();
        switch.guests.by_id(self.id).is_some_and(|guest| match queue.direction() {
            Direction::Receive => switch.guests.receivers[guest].ring.is_some(),
            Direction::Transmit => switch.guests.senders[guest].ring.is_some(),
        })
    }

    fn start_ring(&self, queue: QueueIdx, ring: Ring) -> Result<(), StartError> {
        let start = |switch: &mut VsockSwitch, guest| match queue.direction() {
            Direction::Receive => switch.start_rx(guest, ring),
            Direction::Transmit => switch.start_tx(guest, ring),
        };
        self.with(start).unwrap_or(Ok(()))
    }

    fn stop_ring(&self, queue: QueueIdx) -> Option<u16> {
        self.with(|switch, guest| match queue.direction() {
            Direction::Receive => switch.stop_rx(guest),
            Direction::Transmit => switch.stop_tx(guest),
        })?
    }

    fn set_call(&self, queue: QueueIdx, call: Option<Arc<EventFd>>) {
        self.with(|switch, guest| match queue.direction() {
            Direction::Receive => switch.guests.receivers[guest].call = call,
            Direction::Transmit => switch.guests.senders[guest].call = call,
        });
    }

    fn interrupt(&self, queue: QueueIdx) {
        self.with(|switch, guest| {
            let call = match queue.direction() {
                Direction::Receive => &switch.guests.receivers[guest].call,
                Direction::Transmit => &switch.guests.senders[guest].call,
            };
            if let Some(call) = call {
                call.signal();
            }
        });
    }

    fn position_in_memory(&self, queue: QueueIdx, setup: &RingSetup) -> Option<u16> {
        let RingSetup { memory, config } = setup;
        if queue.direction() == Direction::Receive {
            return Some(SocketRx::new(memory, config).ok()?.position());
        }
        let switch = self.shared.enter();
        let device = switch.guests.devices[switch.guests.by_id(self.id)?].as_ref()?;
        Some(SocketTx::new(memory, config, device.counters.in_flight()).ok()?.position())
    }

    fn gone(&self) {
        self.with(VsockSwitch::gone);
    }
}
