//! A control group for each VM: CPU and memory by shares and up to limits, disks by shares (SPEC VN-14).
//!
//! With cgroup v1 a VM has one group in each controller's hierarchy, below the one that its process was in. With cgroup v2 it has one
//! group, below the scope that VMs are put in. A group is named after VM and process, so that two daemons, or two lives of a VM, never
//! share one. What is made is in the ledger before it is made; taking it back is moving the process home and removing the group.
//!
//! No limit of memory that would end QEMU is ever set: cgroup v1's `memory.limit_in_bytes` and cgroup v2's `memory.max` stay as they are.

mod controller;
mod disk;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use taut_api::{Bytes, Name};

use crate::folder::{dissolve, members, put};
use crate::ledger::{Ledger, LedgerError};

pub use controller::{Controller, Version};

/// QEMU itself, beside the guest's memory: devices, threads, translated code.
const OVERHEAD: u64 = 128 << 20;
/// In which a limit of CPU is kept, in microseconds.
const PERIOD_US: u64 = 100_000;
/// Processes of a group.
const PROCS: &str = "cgroup.procs";

/// What a VM's process is to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The process.
    pub pid: u32,
    /// CPU shares; 1000 count as much as an ordinary thread.
    pub cpu_shares: u64,
    /// Most CPU, in thousandths of a pCPU.
    pub cpu_limit: Option<u64>,
    /// Guest memory that is never taken from it.
    pub memory_min: Bytes,
    /// Guest memory that is taken from it after that of others.
    pub memory_low: Bytes,
    /// Guest memory above which it is swapped out; the host has swap.
    pub memory_high: Option<Bytes>,
    /// None of it is swapped out.
    pub no_swap: bool,
    /// How much its disk counts: 1000 for an ordinary one. Without, disks are left alone.
    pub disk_shares: Option<u64>,
}

/// Groups that were made, or are about to be, and where their process came from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The group's folder, and its process's folder before.
    pub(crate) made: BTreeMap<PathBuf, PathBuf>,
    /// Controllers that were switched on for the groups in a folder of cgroup v2.
    #[serde(default)]
    pub(crate) switched_on: BTreeMap<PathBuf, BTreeSet<String>>,
}

impl Record {
    /// Is the host as it was?
    pub(crate) fn is_empty(&self) -> bool {
        self.made.is_empty() && self.switched_on.is_empty()
    }
}

/// What came of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// VMs whose processes are in their groups, everything set.
    pub in_force: BTreeSet<Name>,
    /// What could not be done.
    pub problems: BTreeMap<Name, String>,
    /// Disk shares that this kernel cannot weigh, or that count for nothing, and why.
    pub weightless: BTreeMap<Name, String>,
}

/// The groups of one host.
#[derive(Debug)]
pub struct Groups {
    root: PathBuf,
    cpu: Option<Controller>,
    memory: Option<Controller>,
    cpuset: Option<Controller>,
    disk: Option<Controller>,
    ledger: Ledger,
    /// What was made, or begun, as the ledger has it.
    record: Record,
    enter: Enter,
}

/// Puts a process into the group of a folder.
type Enter = fn(&Path, u32) -> io::Result<()>;

impl Groups {
    /// The host whose file system starts at `root`. `scope` is the cgroup (v2) that VMs' groups are made in, if it is not the topmost;
    /// `ledger` has what an earlier one made.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub fn new(root: &Path, scope: Option<&Path>, ledger: Ledger) -> Result<Self, LedgerError> {
        let find = |name| Controller::find(root, scope, name);
        Ok(Self {
            root: root.to_owned(),
            cpu: find("cpu"),
            memory: find("memory"),
            cpuset: find("cpuset"),
            disk: find("io"),
            record: ledger.groups()?,
            ledger,
            enter: |dir, pid| fs::write(dir.join(PROCS), pid.to_string()),
        })
    }

    /// The same on a tree whose kernel is a function.
    #[cfg(test)]
    pub(crate) fn with_kernel(root: &Path, ledger: Ledger, enter: Enter) -> Result<Self, LedgerError> {
        Self::new(root, None, ledger).map(|groups| Self { enter, ..groups })
    }

    /// Who controls CPU time, memory, pCPUs, and disks.
    pub fn versions(&self) -> [Option<Version>; 4] {
        [&self.cpu, &self.memory, &self.cpuset, &self.disk]
            .map(|found| found.as_ref().map(Controller::version))
    }

    /// Is the host as it was?
    pub fn is_empty(&self) -> bool {
        self.record.is_empty()
    }

    /// The group of a VM's process in cgroup v2, while it is there.
    pub fn folder(&self, vm: &Name, pid: u32) -> Option<PathBuf> {
        let controller = self.cpuset.as_ref().filter(|found| found.version() == Version::V2)?;
        Some(controller.base.join(group(vm, pid))).filter(|folder| folder.exists())
    }

    /// Processes that [`Groups::make`] will move to another group of CPU time of cgroup v1.
    pub fn arriving(&self, wanted: &BTreeMap<Name, Wanted>) -> Vec<u32> {
        let Some(cpu) = self.cpu_of_v1() else { return Vec::new() };
        let moves = |(name, vm): &(&Name, &Wanted)| {
            let dir = cpu.group(&self.root, vm.pid, &group(name, vm.pid));
            dir.is_some() && dir != cpu.home(&self.root, vm.pid)
        };
        wanted.iter().filter(moves).map(|(_, vm)| vm.pid).collect()
    }

    /// Processes that [`Groups::clear`] will move out of their group of CPU time of cgroup v1.
    pub fn leaving(&self, wanted: &BTreeMap<Name, Wanted>) -> Vec<u32> {
        let Some(cpu) = self.cpu_of_v1() else { return Vec::new() };
        let keep = names(wanted.iter());
        let goes = |dir: &&PathBuf| dir.starts_with(&cpu.base) && !is_one_of(dir, &keep);
        self.record.made.keys().filter(goes).flat_map(|dir| members(dir, PROCS)).collect()
    }

    fn cpu_of_v1(&self) -> Option<&Controller> {
        self.cpu.as_ref().filter(|found| found.version() == Version::V1)
    }

    /// Makes a group for each VM that is to have one, with its values.
    ///
    /// # Errors
    /// When the ledger cannot be kept: then nothing was made.
    pub fn make(&mut self, wanted: &BTreeMap<Name, Wanted>) -> Result<Outcome, LedgerError> {
        let mut outcome = Outcome::default();
        if wanted.is_empty() {
            return Ok(outcome);
        }
        let mut next = self.record.clone();
        for controller in self.controllers(wanted.values()) {
            if let Some((folder, names)) = controller.to_switch_on() {
                next.switched_on.entry(folder).or_default().extend(names);
            }
            for (name, vm) in wanted.iter().filter(|(_, vm)| controller.is_for(vm)) {
                if let Some(home) = controller.home(&self.root, vm.pid)
                    && let Some(dir) = controller.group(&self.root, vm.pid, &group(name, vm.pid))
                    && home != dir
                {
                    next.made.entry(dir).or_insert(home);
                }
            }
        }
        if next != self.record {
            self.ledger.note_groups(&next)?;
            self.record = next;
        }
        for controller in self.controllers(wanted.values()) {
            if let Err(error) = controller.switch_on() {
                for name in wanted.keys() {
                    outcome
                        .problems
                        .insert(name.clone(), format!("its control group cannot be made: {error}"));
                }
            }
        }
        for (name, vm) in wanted {
            match self.put(name, vm) {
                Ok(()) => {
                    outcome.in_force.insert(name.clone());
                    let why = self.disk.as_ref().and_then(|disk| self.weightless(disk, name, vm));
                    outcome.weightless.extend(why.map(|why| (name.clone(), why)));
                }
                Err(problem) => drop(outcome.problems.entry(name.clone()).or_insert(problem)),
            }
        }
        Ok(outcome)
    }

    /// Takes back every group that none of these VMs has.
    ///
    /// # Errors
    /// When the ledger cannot be kept: it has more then than there is.
    pub fn clear(&mut self, wanted: &BTreeMap<Name, Wanted>) -> Result<(), LedgerError> {
        let before = self.record.clone();
        let keep = names(wanted.iter());
        let with_disk = names(wanted.iter().filter(|(_, vm)| vm.disk_shares.is_some()));
        let disk = self.disk.as_ref().filter(|disk| disk.version() == Version::V1);
        self.record.made.retain(|dir, home| {
            let keep = if disk.is_some_and(|disk| dir.starts_with(&disk.base)) { &with_disk } else { &keep };
            // What is still in use, or has a group of its own below it, is tried again.
            // Its home may have gone: then the folder above is.
            let homes: Vec<&Path> = [Some(home.as_path()), dir.parent()].into_iter().flatten().collect();
            is_one_of(dir, keep) || dissolve(dir, PROCS, &homes).is_err()
        });
        if wanted.is_empty() && self.record.made.is_empty() {
            self.record.switched_on.retain(|folder, names| controller::switch_off(folder, names).is_err());
        }
        if self.record != before {
            self.ledger.note_groups(&self.record)?;
        }
        Ok(())
    }

    /// Those that these VMs need. That of disks comes last: it shares the others' group with cgroup v2.
    fn controllers<'a>(&self, wanted: impl Iterator<Item = &'a Wanted>) -> impl Iterator<Item = &Controller> {
        let disks = wanted.into_iter().any(|vm| vm.disk_shares.is_some());
        self.cpu
            .iter()
            .chain(&self.memory)
            .chain(self.cpuset.iter().filter(|found| found.version() == Version::V2))
            .chain(self.disk.iter().filter(move |_| disks))
    }

    /// Why the weight of a VM's disk counts for nothing.
    fn weightless(&self, disk: &Controller, name: &Name, vm: &Wanted) -> Option<String> {
        vm.disk_shares?;
        let dir = disk.group(&self.root, vm.pid, &group(name, vm.pid))?;
        disk::weightless(&self.root, disk, &dir)
    }

    /// Makes the groups of one VM and moves its process there.
    fn put(&self, name: &Name, vm: &Wanted) -> Result<(), String> {
        let group = group(name, vm.pid);
        let mut done = BTreeSet::new();
        for controller in self.controllers(std::iter::once(vm)) {
            let Some(dir) = controller.group(&self.root, vm.pid, &group) else { continue };
            let cannot =
                |what: &Path, error: &io::Error| format!("{} cannot be set: {error}", what.display());
            if !dir.exists() {
                fs::create_dir(&dir).map_err(|error| cannot(&dir, &error))?;
            }
            for (file, value) in controller.values(vm) {
                let path = dir.join(file);
                put(&path, &value).map_err(|error| cannot(&path, &error))?;
            }
            for (file, value) in controller.weights(vm) {
                let path = dir.join(file);
                if path.exists() {
                    put(&path, &value).map_err(|error| cannot(&path, &error))?;
                }
            }
            if done.insert(dir.clone()) && controller.home(&self.root, vm.pid).as_ref() != Some(&dir) {
                (self.enter)(&dir, vm.pid).map_err(|error| cannot(&dir.join(PROCS), &error))?;
            }
        }
        Ok(())
    }
}

/// Names of these VMs' groups.
fn names<'a>(wanted: impl Iterator<Item = (&'a Name, &'a Wanted)>) -> BTreeSet<String> {
    wanted.map(|(name, vm)| group(name, vm.pid)).collect()
}

fn is_one_of(dir: &Path, names: &BTreeSet<String>) -> bool {
    dir.file_name().is_some_and(|name| names.contains(&*name.to_string_lossy()))
}

/// Name of a VM's group.
fn group(vm: &Name, pid: u32) -> String {
    format!("taut.vm.{vm}.{pid}")
}

#[cfg(test)]
mod tests;
