//! Memory for queue pairs that is added to running VMs.

use std::time::Duration;

use taut_api::enforcement::LimitKind;
use taut_api::event::Level;
use taut_api::{Bytes, Name};
use taut_plan::Owner;

use super::Reconciler;
use crate::board::queue_pairs_document;
use crate::inbox::{AddResult, Message};
use crate::monitor_thread;
use crate::store::Kind;
use crate::vms::NextStep;

/// Time after which memory that was refused is added again.
const RETRY: Duration = Duration::from_secs(60);
/// Time after which taut looks again whether QEMU has the memory.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

impl Reconciler {
    /// Takes the next step to add the memory that the VM is to get while it runs.
    pub(super) fn add_queue_pairs(&mut self, vm: &Name, wanted: Bytes) {
        match self.vms.next_step(vm, wanted) {
            NextStep::Begin if self.retries.is_due(&self.operation(vm)) => self.begin_adding(vm, wanted),
            NextStep::Limit => {
                self.vms.note_limits(vm);
                self.inbox.send(Message::Wake);
            }
            // The fabric accepts the memory from the process once it has the next configuration. A
            // former attempt that was unclear is looked at after a pause.
            NextStep::Ask if self.is_fabric_ready() && self.retries.is_due(&self.operation(vm)) => {
                match self.missing_limit(vm) {
                    Some(why) => self.end_adding_of_present(vm, AddResult::Refused(why)),
                    None => self.ask_for_memory(vm),
                }
            }
            NextStep::GiveUp => {
                self.end_adding_of_present(vm, AddResult::Absent);
                self.inbox.send(Message::Wake);
            }
            NextStep::Begin | NextStep::Ask | NextStep::Wait => {}
        }
    }

    /// Records the result of adding memory, and tells it.
    pub(super) fn end_adding(&mut self, vm: &Name, pid: u32, added: AddResult) {
        let Some(size) = self.vms.end_adding(vm, pid, &added) else { return };
        if matches!(added, AddResult::There(_) | AddResult::Absent) {
            self.retries.forget(&operations(vm));
            self.board.lock().problems.remove(&queue_pairs_document(vm));
        }
        match added {
            AddResult::There(_) => {
                let message = "memory for queue pairs was added while it runs: Linux makes /dev/dax0.0 of it";
                let owner = Owner::Vmci(vm.clone()).to_string();
                self.store.event(Level::Info, &owner, "vmci.queue-pairs-added", message);
            }
            AddResult::Absent => {}
            AddResult::Refused(why) => {
                let hint = "make memory free on the host, or set another size; taut tries again";
                self.retries.delay(&self.operation(vm), RETRY);
                self.note_not_added(vm, size, &format!("{why}; hint: {hint}"));
            }
            AddResult::NoDevice(why) => {
                let hint = "stop and start the VM, which gives it this memory";
                self.retries.give_up(&self.operation(vm));
                self.note_not_added(vm, size, &format!("{why}; hint: {hint}"));
            }
            AddResult::Unclear(why) => {
                let hint = "if this lasts, stop and start the VM; taut tries again";
                let problem = format!(
                    "it is not known yet whether {size} of memory for queue pairs were added: {why}; hint: {hint}"
                );
                self.retries.delay(&self.operation(vm), LOOK_AGAIN);
                self.note_problem(vm, &problem);
            }
        }
    }

    /// Returns why the memory of a VM's process still has its smaller limit.
    fn missing_limit(&self, vm: &Name) -> Option<String> {
        let why = self.memory_limit_problem(vm).filter(|_| self.vms.needs_larger_limit(vm))?;
        Some(format!("the limit of its memory cannot be raised: {why}"))
    }

    fn memory_limit_problem(&self, vm: &Name) -> Option<String> {
        self.board.lock().report.vms.get(vm)?.unlimited.get(&LimitKind::Memory).cloned()
    }

    fn begin_adding(&mut self, vm: &Name, wanted: Bytes) {
        if self.retries.is_new(&self.operation(vm)) {
            // Problems from now on belong to the user's last request.
            self.retries.forget(&operations(vm));
            self.board.lock().problems.remove(&queue_pairs_document(vm));
        }
        let had_limit = self.memory_limit_problem(vm).is_none();
        match self.vms.begin_adding(vm, wanted, had_limit) {
            // The next plan has it, for the limits of the process and for the fabric.
            Ok(()) => self.inbox.send(Message::Wake),
            Err(error) => {
                let why = format!("{error}; hint: make memory or descriptors free");
                self.retries.delay(&self.operation(vm), RETRY);
                self.note_not_added(vm, wanted, &why);
            }
        }
    }

    /// Hands the memory to QEMU on another thread, since QEMU may be slow.
    fn ask_for_memory(&mut self, vm: &Name) {
        let Some(task) = self.vms.monitor_task(vm) else { return };
        let (inbox, name, pid) = (self.inbox.clone(), vm.clone(), task.pid());
        let spawned = monitor_thread::try_spawn(vm, move || {
            let added = task.run();
            inbox.send(Message::QueuePairsAdded(name, pid, added));
        });
        if let Err(error) = spawned {
            let why = format!("no thread can be started: {error}");
            self.end_adding(vm, pid, AddResult::Unclear(why));
        }
    }

    fn end_adding_of_present(&mut self, vm: &Name, added: AddResult) {
        let pid = self.board.lock().observed.process(vm).map(|process| process.pid);
        if let Some(pid) = pid {
            self.end_adding(vm, pid, added);
        }
    }

    fn note_not_added(&self, vm: &Name, size: Bytes, why: &str) {
        let problem =
            format!("{size} of memory for queue pairs were not added, and the VM runs as before: {why}");
        self.note_problem(vm, &problem);
    }

    /// Raises an event for a problem, unless the attempt before had the same.
    fn note_problem(&self, vm: &Name, problem: &str) {
        if self.board.is_new_problem(&queue_pairs_document(vm), problem) {
            let owner = Owner::Vmci(vm.clone()).to_string();
            self.store.event(Level::Warning, &owner, "vmci.no-queue-pairs", problem);
        }
    }

    /// Each request of a user is an operation of its own, which is tried at once.
    fn operation(&self, vm: &Name) -> String {
        format!("{}{}", operations(vm), self.store.state().revision_of(Kind::Vm, vm))
    }
}

/// The beginning of the names of operations that add memory to this VM.
fn operations(vm: &Name) -> String {
    format!("vm/{vm}/queue-pairs/")
}
