//! Memory for queue pairs that is added to a running QEMU (decision 0049).
//!
//! Before QEMU gets the file, the record of the VM names it, and the limits of its process are
//! larger by it. So a daemon that is started in between finds the file in QEMU, or undoes what the
//! former one has prepared.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use taut_api::enforcement::ProcessLimits;
use taut_api::{Bytes, Name};
use taut_plan::resources::process_limits::add_queue_pairs;
use taut_vm::hotplug::{self, PlugError, Plugged};
use taut_vm::launch::Tuning;
use taut_vm::qmp::Qmp;

use super::queue_pairs::{self, QueuePairFile};
use super::stop::Stopping;
use super::{Running, Vms};
use crate::inbox::AddResult;
use crate::process::{Process, write_record};

/// Maximum time that QEMU's monitor may take to answer, except while QEMU allocates the memory.
const PATIENCE: Duration = Duration::from_secs(2);
/// Time in which a process ends whose monitor has gone.
const ENDING: Duration = Duration::from_millis(500);

/// Record of memory that is about to be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PendingMemory {
    /// The file, with a descriptor that is not known yet.
    file: QueuePairFile,
    /// Limits of the process before.
    limits: Option<ProcessLimits>,
}

/// Progress of this daemon in adding memory.
#[derive(Debug, Default)]
pub(super) struct AddProgress {
    /// The file that was made and that QEMU does not have yet.
    unsent_file: Option<OwnedFd>,
    /// The memory of the process was limited before.
    had_limit: bool,
    /// The larger limits of the process were part of a plan that the loop has settled since.
    limits_planned: bool,
    /// A thread talks to QEMU.
    in_monitor: bool,
}

/// The next step to add memory to a VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NextStep {
    /// Nothing has begun: [`Vms::begin_adding`].
    Begin,
    /// This daemon or the former one has begun: the loop settles the larger limits of the process,
    /// which the present plan has ([`Vms::note_limits`]).
    Limit,
    /// The memory is prepared: a thread asks QEMU to take it ([`Vms::monitor_task`]).
    Ask,
    /// The memory is prepared and no longer wanted: all is undone ([`Vms::end_adding`]).
    GiveUp,
    /// A thread talks to QEMU, or there is nothing to do.
    Wait,
}

/// Talks to the QEMU of one VM.
#[derive(Debug)]
pub(crate) struct MonitorTask {
    process: Process,
    monitor: PathBuf,
    tuning: Tuning,
    file: QueuePairFile,
    unsent_file: Option<OwnedFd>,
}

impl Vms {
    /// Returns the next step for a VM that is to have `wanted` memory for queue pairs.
    pub(crate) fn next_step(&self, name: &Name, wanted: Bytes) -> NextStep {
        let Some(vm) = self.running.get(name) else { return NextStep::Wait };
        match vm.facts.pending_queue_pairs {
            _ if vm.adding.in_monitor || vm.stopping.is_some() => NextStep::Wait,
            _ if vm.facts.queue_pairs.is_some() => NextStep::Wait,
            None if wanted.0 > 0 => NextStep::Begin,
            None => NextStep::Wait,
            Some(added) if vm.adding.unsent_file.is_some() && added.file.memory.size != wanted => {
                NextStep::GiveUp
            }
            Some(_) if !vm.adding.limits_planned => NextStep::Limit,
            Some(_) => NextStep::Ask,
        }
    }

    /// Makes memory of `size`, and records it with the larger limits of the process. `had_limit`
    /// says whether the limit of its memory is in force.
    pub(crate) fn begin_adding(&mut self, name: &Name, size: Bytes, had_limit: bool) -> io::Result<()> {
        let path = self.paths(name).pid();
        let Some(vm) = self.running.get_mut(name) else { return Ok(()) };
        let made = queue_pairs::make(size)?;
        let file = QueuePairFile::of_new(&made, size)?;
        let before = vm.facts.clone();
        vm.facts.pending_queue_pairs = Some(PendingMemory { file, limits: before.limits });
        vm.facts.limits = before.limits.map(|limits| add_queue_pairs(limits, size));
        vm.set_queue_pairs_size(size);
        if let Err(error) = write_record(&path, &vm.record()) {
            vm.facts = before;
            return Err(error);
        }
        vm.adding = AddProgress { unsent_file: Some(made), had_limit, ..AddProgress::default() };
        Ok(())
    }

    /// Notes that the larger limits of a process will be in force when the present plan is settled.
    pub(crate) fn note_limits(&mut self, name: &Name) {
        if let Some(vm) = self.running.get_mut(name) {
            vm.adding.limits_planned = true;
        }
    }

    /// Returns whether the memory of a VM's process was limited before memory was made, which QEMU
    /// does not have yet.
    pub(crate) fn needs_larger_limit(&self, name: &Name) -> bool {
        let adding = self.running.get(name).map(|vm| &vm.adding);
        adding.is_some_and(|adding| adding.unsent_file.is_some() && adding.had_limit)
    }

    /// Returns who is to talk to QEMU on another thread, and then tells the result by
    /// [`Vms::end_adding`].
    pub(crate) fn monitor_task(&mut self, name: &Name) -> Option<MonitorTask> {
        let monitor = self.paths(name).qmp();
        let vm = self.running.get_mut(name)?;
        let PendingMemory { file, .. } = vm.facts.pending_queue_pairs?;
        let process = match vm.process.duplicate() {
            Ok(process) => process,
            Err(error) => {
                tracing::warn!(vm = %name, %error, "its memory for queue pairs is added later");
                return None;
            }
        };
        vm.adding.in_monitor = true;
        let unsent_file = vm.adding.unsent_file.take();
        Some(MonitorTask { process, monitor, tuning: vm.facts.tuning, file, unsent_file })
    }

    /// Records the result for process `pid`, and returns the size of the memory. Does nothing and
    /// returns `None` if the process was killed or has ended, or the VM has another one by now.
    pub(crate) fn end_adding(&mut self, name: &Name, pid: u32, result: &AddResult) -> Option<Bytes> {
        let vm = self.running.get_mut(name).filter(|vm| vm.process.pid() == pid)?;
        if vm.stopping == Some(Stopping::Killed) || vm.process.has_ended(Duration::ZERO) {
            return None;
        }
        let size = vm.facts.pending_queue_pairs?.file.memory.size;
        vm.adding = AddProgress::default();
        let message = "memory for queue pairs that was added, or not, cannot be recorded: the next daemon looks \
                       for it again";
        match result {
            AddResult::There(descriptor) => self.record_change(name, message, |vm| {
                let added = vm.facts.pending_queue_pairs.take();
                vm.facts.queue_pairs = added.map(|added| added.file.with_descriptor(*descriptor));
            }),
            AddResult::Absent | AddResult::Refused(_) | AddResult::NoDevice(_) => {
                self.record_change(name, message, |vm| {
                    if let Some(added) = vm.facts.pending_queue_pairs.take() {
                        vm.facts.limits = added.limits;
                        vm.set_queue_pairs_size(Bytes(0));
                    }
                });
            }
            // The next attempt finds out. The limits stay.
            AddResult::Unclear(_) => {}
        }
        Some(size)
    }
}

impl Running {
    fn set_queue_pairs_size(&mut self, queue_pairs: Bytes) {
        if let Some(size) = &mut self.facts.size {
            size.queue_pairs = queue_pairs;
        }
    }
}

impl MonitorTask {
    /// Process of the VM.
    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Adds the memory that was made, or finds out what the former attempt has done.
    pub(crate) fn run(self) -> AddResult {
        let result = match self.ask() {
            Ok(Plugged::Absent) => AddResult::Absent,
            Ok(Plugged::There) => self.find(),
            Err(PlugError::NoMemory(error)) => AddResult::Refused(error.to_string()),
            Err(PlugError::NoDevice(error)) => AddResult::NoDevice(error.to_string()),
            Err(PlugError::Unclear(error)) => AddResult::Unclear(format!("{:#}", anyhow::Error::from(error))),
        };
        if matches!(result, AddResult::Unclear(_)) {
            // The monitor of a QEMU that ends goes first. Nobody is to be told of that.
            self.process.has_ended(ENDING);
        }
        result
    }

    fn find(&self) -> AddResult {
        let pid = self.pid();
        match self.file.found_in(pid) {
            Ok(Some(descriptor)) => AddResult::There(descriptor),
            Ok(None) => AddResult::Unclear(format!("process {pid} has another file for it")),
            Err(error) => AddResult::Unclear(format!("its file cannot be found in process {pid}: {error}")),
        }
    }

    fn ask(&self) -> Result<Plugged, PlugError> {
        let mut qmp = Qmp::connect(&self.monitor, PATIENCE).map_err(PlugError::Unclear)?;
        let before = hotplug::settle(&mut qmp).map_err(PlugError::Unclear)?;
        let (Plugged::Absent, Some(file)) = (before, &self.unsent_file) else { return Ok(before) };
        hotplug::queue_pairs(&mut qmp, file.as_fd(), self.file.memory.file_size(), &self.tuning)?;
        Ok(Plugged::There)
    }
}
