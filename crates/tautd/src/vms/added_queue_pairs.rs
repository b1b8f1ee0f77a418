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
use taut_vm::hotplug::{self, Plugged};
use taut_vm::launch::Tuning;
use taut_vm::qmp::{Qmp, QmpError};

use super::queue_pairs::{self, QueuePairFile};
use super::{Running, Vms};
use crate::inbox::AddedMemory;
use crate::process::write_record;

/// Maximum time that QEMU's monitor may take to answer. It allocates 1 GiB at once if the VM's
/// memory is locked.
const PATIENCE: Duration = Duration::from_secs(20);

/// What was recorded before memory is added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Added {
    /// The file, with a descriptor that is not known yet.
    file: QueuePairFile,
    /// Limits of the process before.
    limits: Option<ProcessLimits>,
}

/// What this daemon does to add memory.
#[derive(Debug, Default)]
pub(super) struct Adding {
    /// The file that was made and that QEMU does not have yet.
    made: Option<OwnedFd>,
    /// The larger limits of the process were part of a plan that the loop has settled since.
    limited: bool,
    /// A thread talks to QEMU.
    asks: bool,
}

/// The next step to add memory to a VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NextStep {
    /// Nothing has begun: [`Vms::begin_adding`].
    Begin,
    /// This daemon or the former one has begun: the loop settles the larger limits of the process,
    /// which the present plan has ([`Vms::note_limits`]).
    Limit,
    /// It is prepared: [`Vms::adder`].
    Ask,
    /// It is prepared and no longer wanted: [`Vms::end_adding`].
    GiveUp,
    /// A thread talks to QEMU, or there is nothing to do.
    Wait,
}

/// Talks to the QEMU of one VM.
#[derive(Debug)]
pub(crate) struct Adder {
    /// Process of the VM.
    pub(crate) pid: u32,
    monitor: PathBuf,
    tuning: Tuning,
    file: QueuePairFile,
    made: Option<OwnedFd>,
}

impl Vms {
    /// Returns the next step for a VM that is to have `wanted` memory for queue pairs.
    pub(crate) fn next_step(&self, name: &Name, wanted: Bytes) -> NextStep {
        let Some(vm) = self.running.get(name) else { return NextStep::Wait };
        match vm.facts.added {
            _ if vm.adding.asks || vm.facts.queue_pairs.is_some() => NextStep::Wait,
            None if wanted.0 > 0 => NextStep::Begin,
            None => NextStep::Wait,
            Some(added) if vm.adding.made.is_some() && added.file.memory.size != wanted => NextStep::GiveUp,
            Some(_) if !vm.adding.limited => NextStep::Limit,
            Some(_) => NextStep::Ask,
        }
    }

    /// Makes memory of `size`, and records it with the larger limits of the process.
    pub(crate) fn begin_adding(&mut self, name: &Name, size: Bytes) -> io::Result<()> {
        let path = self.paths(name).pid();
        let Some(vm) = self.running.get_mut(name) else { return Ok(()) };
        let made = queue_pairs::make(size)?;
        let file = QueuePairFile::of_new(&made, size)?;
        let before = vm.facts.clone();
        vm.facts.added = Some(Added { file, limits: before.limits });
        vm.facts.limits = before.limits.map(|limits| add_queue_pairs(limits, size));
        vm.set_queue_pairs_size(size);
        if let Err(error) = write_record(&path, &vm.record()) {
            vm.facts = before;
            return Err(error);
        }
        vm.adding = Adding { made: Some(made), ..Adding::default() };
        Ok(())
    }

    /// Notes that the larger limits of a process will be in force when the present plan is settled.
    pub(crate) fn note_limits(&mut self, name: &Name) {
        if let Some(vm) = self.running.get_mut(name) {
            vm.adding.limited = true;
        }
    }

    /// Returns who is to talk to QEMU on another thread, and then tells the result by
    /// [`Vms::end_adding`].
    pub(crate) fn adder(&mut self, name: &Name) -> Option<Adder> {
        let monitor = self.paths(name).qmp();
        let vm = self.running.get_mut(name)?;
        let Added { file, .. } = vm.facts.added?;
        vm.adding.asks = true;
        let made = vm.adding.made.take();
        Some(Adder { pid: vm.process.pid(), monitor, tuning: vm.facts.tuning, file, made })
    }

    /// Records the result for process `pid`. Does nothing and returns false if the VM has ended, or
    /// has another process by now.
    pub(crate) fn end_adding(&mut self, name: &Name, pid: u32, result: &AddedMemory) -> bool {
        let Some(vm) = self.running.get_mut(name).filter(|vm| vm.process.pid() == pid) else { return false };
        vm.adding = Adding::default();
        let message = "memory for queue pairs that was added, or not, cannot be recorded: the next daemon looks \
                       for it again";
        match result {
            AddedMemory::There(descriptor) => self.record_change(name, message, |vm| {
                let added = vm.facts.added.take();
                vm.facts.queue_pairs = added.map(|added| added.file.with_descriptor(*descriptor));
            }),
            AddedMemory::Absent | AddedMemory::Refused(_) => self.record_change(name, message, |vm| {
                if let Some(added) = vm.facts.added.take() {
                    vm.facts.limits = added.limits;
                    vm.set_queue_pairs_size(Bytes(0));
                }
            }),
            // The next attempt finds out. The limits stay.
            AddedMemory::Unclear(_) => {}
        }
        true
    }
}

impl Running {
    fn set_queue_pairs_size(&mut self, queue_pairs: Bytes) {
        if let Some(size) = &mut self.facts.size {
            size.queue_pairs = queue_pairs;
        }
    }
}

impl Adder {
    /// Adds the memory that was made, or finds out what the former attempt has done.
    pub(crate) fn run(self) -> AddedMemory {
        match self.ask() {
            Ok(Plugged::Absent) => AddedMemory::Absent,
            Ok(Plugged::There) => match self.file.found_in(self.pid) {
                Ok(Some(descriptor)) => AddedMemory::There(descriptor),
                Ok(None) => AddedMemory::Unclear(format!("process {} has another file for it", self.pid)),
                Err(error) => {
                    AddedMemory::Unclear(format!("its file cannot be found in process {}: {error}", self.pid))
                }
            },
            Err(error @ QmpError::Refused { .. }) if self.made.is_some() => {
                AddedMemory::Refused(error.to_string())
            }
            Err(error) => AddedMemory::Unclear(format!("{:#}", anyhow::Error::from(error))),
        }
    }

    fn ask(&self) -> Result<Plugged, QmpError> {
        let mut qmp = Qmp::connect(&self.monitor, PATIENCE)?;
        let before = hotplug::settle(&mut qmp)?;
        let (Plugged::Absent, Some(made)) = (before, &self.made) else { return Ok(before) };
        hotplug::queue_pairs(&mut qmp, made.as_fd(), self.file.memory.file_size(), &self.tuning)?;
        Ok(Plugged::There)
    }
}
