//! A control group for each VM: shares and limits of CPU and memory, reserved memory, shares of
//! disks (VN-14).
//!
//! With cgroup v1 a VM has a group in each controller's hierarchy, below the group that its process
//! was in. With cgroup v2 it has one group, in the scope for VMs. A group is in the ledger before
//! it is made. Taking it back moves the process to its former group and removes the VM's.
//!
//! No memory limit that would kill QEMU is ever set: `memory.limit_in_bytes` of cgroup v1 and
//! `memory.max` of cgroup v2 stay as they are.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use taut_api::Name;
use taut_api::enforcement::{Controllers, GroupSettings, Hierarchy, HostPlan, HostReport};

use crate::kernel::cgroup::controller::{self, Controller};
use crate::kernel::cgroup::{disk, dissolve, group_name, members, put};
use crate::ledger::record::GroupRecord;
use crate::ledger::{Ledger, LedgerError};

/// File of a group's processes.
const PROCS: &str = "cgroup.procs";

/// The part of enforcement that makes control groups.
#[derive(Debug)]
pub(super) struct Groups {
    root: PathBuf,
    cpu: Option<Controller>,
    memory: Option<Controller>,
    cpuset: Option<Controller>,
    disk: Option<Controller>,
    ledger: Ledger,
    /// Groups that were made, or begun, as in the ledger.
    record: GroupRecord,
    enter: Enter,
}

/// Moves a process into the group of a folder.
type Enter = fn(&Path, u32) -> io::Result<()>;

/// A VM that gets a group.
struct Wanted<'a> {
    name: &'a Name,
    pid: u32,
    settings: &'a GroupSettings,
}

impl Wanted<'_> {
    fn group(&self) -> String {
        group_name(self.name, self.pid)
    }
}

/// Returns the VMs that get a group.
fn wanted(plan: &HostPlan) -> Vec<Wanted<'_>> {
    let vms = plan.vms.iter();
    vms.filter_map(|(name, vm)| Some(Wanted { name, pid: vm.pid, settings: vm.group.as_ref()? })).collect()
}

impl Groups {
    /// Reads from the ledger what an earlier process did. See [`super::Enforcer::new`].
    pub(super) fn new(root: &Path, scope: Option<&Path>, ledger: Ledger) -> Result<Self, LedgerError> {
        let find = |name| Controller::find(root, scope, name);
        Ok(Self {
            root: root.to_owned(),
            cpu: find("cpu"),
            memory: find("memory"),
            cpuset: find("cpuset"),
            disk: find("io"),
            record: ledger.book()?.groups,
            ledger,
            enter: |dir, pid| fs::write(dir.join(PROCS), pid.to_string()),
        })
    }

    /// Does the same with a function that stands in for the kernel.
    #[cfg(test)]
    pub(super) fn with_kernel(root: &Path, ledger: Ledger, enter: Enter) -> Result<Self, LedgerError> {
        Self::new(root, None, ledger).map(|groups| Self { enter, ..groups })
    }

    /// Returns the controllers that this host can use.
    pub(super) fn controllers(&self) -> Controllers {
        let [cpu, memory, cpuset, disk] = [&self.cpu, &self.memory, &self.cpuset, &self.disk]
            .map(|found| found.as_ref().map_or(Hierarchy::None, Controller::version));
        Controllers { cpu, memory, cpuset, disk }
    }

    /// Returns whether nothing on the host is changed.
    pub(super) fn is_idle(&self) -> bool {
        self.record.is_empty()
    }

    /// Returns the processes that [`Groups::make`] will move to another CPU group of cgroup v1.
    pub(super) fn arriving(&self, plan: &HostPlan) -> Vec<u32> {
        let Some(cpu) = self.cpu_of_v1() else { return Vec::new() };
        let moves = |vm: &Wanted<'_>| {
            let dir = cpu.group(&self.root, vm.pid, &vm.group());
            dir.is_some() && dir != cpu.home(&self.root, vm.pid)
        };
        wanted(plan).into_iter().filter(moves).map(|vm| vm.pid).collect()
    }

    /// Returns the processes that [`Groups::clear`] will move out of their CPU group of cgroup v1.
    pub(super) fn leaving(&self, plan: &HostPlan) -> Vec<u32> {
        let Some(cpu) = self.cpu_of_v1() else { return Vec::new() };
        let keep = names(&wanted(plan));
        let goes = |dir: &&PathBuf| dir.starts_with(&cpu.base) && !is_one_of(dir, &keep);
        self.record.made.keys().filter(goes).flat_map(|dir| members(dir, PROCS)).collect()
    }

    fn cpu_of_v1(&self) -> Option<&Controller> {
        self.cpu.as_ref().filter(|found| found.version() == Hierarchy::V1)
    }

    /// Makes the groups of the plan and sets them. Nothing is made if the ledger cannot be written.
    pub(super) fn make(&mut self, plan: &HostPlan, report: &mut HostReport) -> Result<(), LedgerError> {
        for vm in report.vms.values_mut() {
            (vm.grouped, vm.group_problem, vm.weightless) = (false, None, None);
        }
        let wanted = wanted(plan);
        self.record_before(&wanted)?;
        for controller in self.controllers_for(&wanted) {
            if let Err(error) = controller.switch_on() {
                for vm in &wanted {
                    let problem = format!("its control group cannot be made: {error}");
                    report.vms.entry(vm.name.clone()).or_default().group_problem = Some(problem);
                }
            }
        }
        for vm in &wanted {
            let told = report.vms.entry(vm.name.clone()).or_default();
            match self.put(vm) {
                Ok(()) => {
                    told.grouped = true;
                    told.weightless = self.disk.as_ref().and_then(|disk| self.weightless(disk, vm));
                }
                Err(problem) => drop(told.group_problem.get_or_insert(problem)),
            }
        }
        Ok(())
    }

    /// Records the groups that are about to be made, and the controllers about to be enabled.
    fn record_before(&mut self, wanted: &[Wanted<'_>]) -> Result<(), LedgerError> {
        let mut next = self.record.clone();
        for controller in self.controllers_for(wanted) {
            if let Some((folder, names)) = controller.to_switch_on() {
                next.switched_on.entry(folder).or_default().extend(names);
            }
            for vm in wanted.iter().filter(|vm| controller.is_for(vm.settings)) {
                if let Some(home) = controller.home(&self.root, vm.pid)
                    && let Some(dir) = controller.group(&self.root, vm.pid, &vm.group())
                    && home != dir
                {
                    next.made.entry(dir).or_insert(home);
                }
            }
        }
        self.keep(next)
    }

    /// Removes every group that the plan does not have.
    pub(super) fn clear(&mut self, plan: &HostPlan) -> Result<(), LedgerError> {
        let mut wanted = wanted(plan);
        let is_empty = wanted.is_empty();
        let keep = names(&wanted);
        wanted.retain(|vm| vm.settings.disk_shares.is_some());
        let with_disk = names(&wanted);
        let disk = self.disk.as_ref().filter(|disk| disk.version() == Hierarchy::V1);
        let mut next = self.record.clone();
        next.made.retain(|dir, home| {
            let keep = if disk.is_some_and(|disk| dir.starts_with(&disk.base)) { &with_disk } else { &keep };
            // If its former group no longer exists, a process goes to the group above.
            let homes: Vec<&Path> = [Some(home.as_path()), dir.parent()].into_iter().flatten().collect();
            // A group that is busy or has a subgroup is tried again.
            is_one_of(dir, keep) || dissolve(dir, PROCS, &homes).is_err()
        });
        if is_empty && next.made.is_empty() {
            next.switched_on.retain(|folder, names| controller::switch_off(folder, names).is_err());
        }
        self.keep(next)
    }

    /// Writes the record to the ledger if it has changed.
    fn keep(&mut self, record: GroupRecord) -> Result<(), LedgerError> {
        if record != self.record {
            self.ledger.record(|book| book.groups.clone_from(&record))?;
            self.record = record;
        }
        Ok(())
    }

    /// Returns the controllers that these VMs need. The disks' controller comes last: with cgroup
    /// v2 it shares the others' group.
    fn controllers_for(&self, wanted: &[Wanted<'_>]) -> impl Iterator<Item = &Controller> {
        let disks = wanted.iter().any(|vm| vm.settings.disk_shares.is_some());
        let any = !wanted.is_empty();
        self.cpu
            .iter()
            .chain(&self.memory)
            .chain(self.cpuset.iter().filter(|found| found.version() == Hierarchy::V2))
            .chain(self.disk.iter().filter(move |_| disks))
            .filter(move |_| any)
    }

    /// Returns why the weight of a VM's disk has no effect.
    fn weightless(&self, disk: &Controller, vm: &Wanted<'_>) -> Option<String> {
        vm.settings.disk_shares?;
        let dir = disk.group(&self.root, vm.pid, &vm.group())?;
        disk::weightless(&self.root, disk, &dir)
    }

    /// Makes and sets the groups of one VM, and moves its process there.
    fn put(&self, vm: &Wanted<'_>) -> Result<(), String> {
        let cannot = |what: &Path, error: &io::Error| format!("{} cannot be set: {error}", what.display());
        let mut done = BTreeSet::new();
        for controller in self.controllers_for(std::slice::from_ref(vm)) {
            let Some(dir) = controller.group(&self.root, vm.pid, &vm.group()) else { continue };
            if !dir.exists() {
                fs::create_dir(&dir).map_err(|error| cannot(&dir, &error))?;
            }
            for (file, value) in controller.values(vm.settings) {
                let path = dir.join(file);
                put(&path, &value).map_err(|error| cannot(&path, &error))?;
            }
            for (file, value) in controller.weights(vm.settings) {
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

/// Returns the names of these VMs' groups.
fn names(wanted: &[Wanted<'_>]) -> BTreeSet<String> {
    wanted.iter().map(Wanted::group).collect()
}

fn is_one_of(dir: &Path, names: &BTreeSet<String>) -> bool {
    dir.file_name().is_some_and(|name| names.contains(&*name.to_string_lossy()))
}

#[cfg(test)]
mod tests;
