//! Configuration of devices, and devices that fail.

use taut_api::fabric::PortId;
use taut_api::fabric::config::{SocketConfig, SocketWorker};

use super::{VsockEvent, VsockSwitch};
use crate::net::queue::QueueIdx;
use crate::port::Failure;
use crate::vsock::handover::write_stopped;
use crate::vsock::proto::GuestIdx;

impl VsockSwitch {
    /// Applies a configuration. Returns the devices that were refused, with the reasons.
    /// Connections whose ends may no longer talk are reset.
    pub(crate) fn configure(
        &mut self,
        devices: &[SocketConfig],
        worker: &SocketWorker,
    ) -> Vec<(PortId, String)> {
        self.sched.polling.set_mode(worker.mode);
        self.shares_cpu = worker.cpu.is_none();
        self.sched.stream_pace.allow(self.shares_cpu && self.sched.polling.is_adaptive());
        for id in self.guests.unwanted(devices) {
            self.remove(id);
        }
        let mut refused = Vec::new();
        let mut changed = Vec::new();
        for device in devices {
            if let Some(guest) = self.guests.by_id(device.id) {
                changed.extend(self.guests.reconfigure(guest, device).then_some(guest));
            } else if !device.cid.is_a_vms() || self.guests.by_cid(device.cid).is_some() {
                let why = format!("the context ID {} is another's, or no VM's", device.cid);
                refused.push((device.id, why));
            } else {
                self.insert(device);
            }
        }
        // Connections of removed devices have ended already.
        for id in changed.into_iter().flat_map(|guest| self.table.ids_of(guest)).collect::<Vec<_>>() {
            if self.table.get(id).is_some_and(|connection| !self.guests.may_have(connection)) {
                self.end(id, None);
            }
        }
        refused
    }

    fn insert(&mut self, device: &SocketConfig) {
        // Connections that are over may still name the index of a removed device, until their peers
        // have been told. Such an index is not reused yet.
        let Self { table, guests, .. } = self;
        let guest = guests.insert(device, |guest| table.names(guest));
        self.sched.provide_guest(guest);
    }

    fn remove(&mut self, id: PortId) {
        let Some(guest) = self.guests.detach(id) else { return };
        self.end_all_of(guest);
        // From now on, peers hear nothing of the guest but the end of their connections.
        for id in self.table.ids_of(guest) {
            if let Some(connection) = self.table.get_mut(id) {
                connection.withdraw(connection.side_of(guest));
            }
        }
        self.host.forget(guest);
        self.pairs.remove_region(guest);
        self.sched.remove_guest(guest);
        self.guests.remove(guest);
    }

    /// Stops both rings of a guest that has broken one, until its driver sets them up anew.
    #[cold]
    pub(super) fn ring_broken(&mut self, guest: GuestIdx, queue: QueueIdx, failure: Failure) {
        if let Some(device) = &mut self.guests.devices[guest] {
            device.stopped = None;
            write_stopped(&device.counters, None);
            self.events.push(VsockEvent::Broken { port: device.config.id, queue, failure });
        }
        self.guests.senders[guest].ring = None;
        self.guests.receivers[guest].ring = None;
        self.end_all_of(guest);
    }

    /// Forgets a guest whose front end is gone. The next guest at the device begins anew.
    pub(crate) fn gone(&mut self, guest: GuestIdx) {
        if let Some(device) = &mut self.guests.devices[guest] {
            device.stopped = None;
            write_stopped(&device.counters, None);
        }
        self.end_all_of(guest);
    }
}
