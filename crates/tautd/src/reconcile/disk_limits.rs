//! Limits of running VMs' disks, set through QEMU's monitor.

use std::time::Duration;

use taut_api::Name;
use taut_api::event::Level;
use taut_plan::resources::disk_limits::wanted_limits;
use taut_vm::launch::throttle;
use taut_vm::qmp::Qmp;

use super::Reconciler;
use crate::inbox::Message;

/// Maximum time that QEMU's monitor may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Time after which setting the limits is tried again.
const RETRY: Duration = Duration::from_secs(2);

impl Reconciler {
    /// Sets the limits of a running VM's disk, on another thread since QEMU may be slow.
    pub(super) fn limit_disk(&mut self, vm: &Name) {
        let state = self.store.state();
        let Some(wanted) = state.desired.vms.get(vm).map(|vm| wanted_limits(&vm.vm)) else { return };
        let operation = format!("vm/{vm}/disk");
        if !self.retries.is_due(&operation) {
            return;
        }
        self.retries.delay(&operation, RETRY);
        let (monitor, vm) = (self.vms.paths(vm).qmp(), vm.clone());
        let (store, inbox) = (self.store.clone(), self.inbox.clone());
        std::thread::spawn(move || {
            let done = Qmp::connect(&monitor, PATIENCE).and_then(|mut qmp| throttle::set(&mut qmp, wanted));
            match done {
                Ok(()) => inbox.send(Message::DiskLimited(vm, wanted)),
                Err(error) => {
                    let message = format!("the limits of its disk cannot be set: {error}");
                    store.event(Level::Warning, &format!("vm/{vm}"), "disk.not-limited", &message);
                }
            }
        });
    }
}
