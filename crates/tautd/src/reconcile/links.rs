//! Links of running VMs' cards, taken down and up through QEMU's monitor.

use std::time::Duration;

use taut_api::Name;
use taut_api::event::Level;
use taut_api::link::WantedLink;
use taut_plan::Owner;
use taut_vm::launch::link;
use taut_vm::qmp::Qmp;

use super::Reconciler;
use crate::inbox::Message;
use crate::monitor_thread;

/// Maximum time that QEMU's monitor may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Time after which setting the link is tried again.
const RETRY: Duration = Duration::from_secs(2);

impl Reconciler {
    /// Sets the link that the guest sees, on another thread since QEMU may be slow.
    pub(super) fn set_link(&mut self, vm: &Name, index: usize, wanted: WantedLink) {
        let owner = Owner::Nic(vm.clone(), index);
        let operation = format!("{owner}/link");
        if !self.retries.is_due(&operation) {
            return;
        }
        self.retries.delay(&operation, RETRY);
        let (monitor, vm) = (self.vms.paths(vm).qmp(), vm.clone());
        let (board, store, inbox) = (self.board.clone(), self.store.clone(), self.inbox.clone());
        monitor_thread::spawn(&vm.clone(), "setting the link of its card", move || {
            let done =
                Qmp::connect(&monitor, PATIENCE).and_then(|mut qmp| link::set(&mut qmp, index, wanted));
            let document = owner.to_string();
            match done {
                Ok(()) => {
                    board.lock().problems.remove(&document);
                    inbox.send(Message::LinkSet(vm, index, wanted));
                }
                Err(error) => {
                    let problem = format!("the guest does not see the link that is wanted: {error}");
                    if board.is_new_problem(&document, &problem) {
                        store.event(Level::Warning, &document, "nic.link-not-set", &problem);
                    }
                }
            }
        });
    }
}
