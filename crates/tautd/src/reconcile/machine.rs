//! What running VMs' monitors are told.

use std::time::{Duration, Instant};

use taut_api::Name;
use taut_api::event::Level;
use taut_plan::resources::disk_limits::wanted_limits;
use taut_vm::launch::throttle;
use taut_vm::qmp::Qmp;

use super::{Message, Reconciler};

/// How long a monitor may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// How soon it is tried again.
const RETRY: Duration = Duration::from_secs(2);

impl Reconciler {
    /// Gives a running VM's disk its limits. A thread does it: QEMU may be slow.
    pub(super) fn limit_disk(&mut self, vm: &Name) {
        let Some(wanted) = self.store.state().desired.vms.get(vm).map(|vm| wanted_limits(&vm.vm)) else {
            return;
        };
        let key = format!("vm/{vm}/disk");
        if self.retries.get(&key).is_some_and(|at| Instant::now() < *at) {
            return;
        }
        self.retries.insert(key, Instant::now() + RETRY);
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
