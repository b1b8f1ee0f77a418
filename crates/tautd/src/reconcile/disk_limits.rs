//! Limits of running VMs' disks, set through QEMU's monitor.

use std::time::Duration;

use taut_api::Name;
use taut_api::event::Level;
use taut_plan::resources::disk_limits::wanted_limits;
use taut_vm::launch::throttle;
use taut_vm::qmp::Qmp;

use super::Reconciler;
use crate::board::Board;
use crate::inbox::Message;
use crate::monitor_thread;
use crate::store::Store;

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
        let (board, store, inbox) = (self.board.clone(), self.store.clone(), self.inbox.clone());
        monitor_thread::spawn(&vm.clone(), "setting the limits of its disk", move || {
            let done = Qmp::connect(&monitor, PATIENCE).and_then(|mut qmp| throttle::set(&mut qmp, wanted));
            match done {
                Ok(()) => {
                    board.lock().problems.remove(&operation);
                    inbox.send(Message::DiskLimited(vm, wanted));
                }
                Err(error) => tell(&board, &store, &operation, &vm, &error.to_string()),
            }
        });
    }
}

/// Raises an event for a failed attempt, unless the one before failed for the same reason.
fn tell(board: &Board, store: &Store, operation: &str, vm: &Name, error: &str) {
    if board.is_new_problem(operation, error) {
        let message = format!("the limits of its disk cannot be set: {error}; taut tries again");
        store.event(Level::Warning, &format!("vm/{vm}"), "disk.not-limited", &message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_hour_a_refusal_that_repeats_is_one_event() {
        let dir = tempfile::tempdir().unwrap();
        let (board, store) = (Board::default(), Store::open(dir.path()).unwrap());
        let vm: Name = "db1".parse().unwrap();
        for error in ["busy", "busy", "gone", "gone", "busy"] {
            tell(&board, &store, "vm/db1/disk", &vm, error);
        }
        let told: Vec<_> = store.events(0, 10).unwrap().into_iter().map(|event| event.message).collect();
        assert_eq!(told.len(), 3, "{told:?}");
        assert!(told[0].contains(": busy;") && told[1].contains(": gone;"), "{told:?}");
    }
}
