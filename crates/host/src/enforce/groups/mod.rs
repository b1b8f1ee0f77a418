//! A control group for each VM: the limits of its process (SE17), shares and limits of CPU and
//! memory, reserved memory, shares of disks (VN-14).
//!
//! With cgroup v1 a VM has a group in each controller's hierarchy, below the group that its process
//! was in. With cgroup v2 it has one group, in the scope for VMs. A group is in the ledger before
//! it is made. Taking it back moves the process to its former group and removes the VM's.
//!
//! Every process has its limits from before its first instruction until its end. The kernel ends a
//! process that reaches its limit of memory. What the user of a VM sets never ends it.

mod limits;
mod wanted;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use taut_api::enforcement::{Controllers, Hierarchy, HostPlan, HostReport};

use crate::kernel::cgroup::controller::{self, Controller, Listed, is_group_of_v2};
use crate::kernel::cgroup::limits::{Unlimited, allow_swap};
use crate::kernel::cgroup::{disk, dissolve, members, put};
use crate::ledger::record::GroupRecord;
use crate::ledger::{Ledger, LedgerError};
use limits::{LimitsSet, kind_of};
use wanted::{Wanted, by_group, wanted};
use watch::Watched;

/// File of a group's processes.
const PROCS: &str = "cgroup.procs";

/// The part of enforcement that makes control groups.
#[derive(Debug)]
pub(super) struct Groups {
    root: PathBuf,
    /// Group of cgroup v2 that has the VMs' groups, if it is not the root.
    scope: Option<PathBuf>,
    cpu: Option<Controller>,
    memory: Option<Controller>,
    cpuset: Option<Controller>,
    disk: Option<Controller>,
    pids: Option<Controller>,
    ledger: Ledger,
    /// Groups that were made, or begun, as in the ledger.
    record: GroupRecord,
    enter: Enter,
    /// Processes whose limits were set, and that have nothing besides.
    limited: BTreeMap<u32, LimitsSet>,
    watched: Watched,
}

/// Moves a process into the group of a folder.
type Enter = fn(&Path, u32) -> io::Result<()>;

/// What [`Groups::put`] could not do for a VM.
#[derive(Debug, Default)]
struct Shortfall {
    /// Why its shares, limits and reservations are not set.
    problem: Option<String>,
    /// Limits of its process that are not in force.
    unlimited: Vec<Unlimited>,
}

impl Groups {
    /// Reads from the ledger what an earlier process did. See [`super::Enforcer::new`].
    pub(super) fn new(root: &Path, scope: Option<&Path>, ledger: Ledger) -> Result<Self, LedgerError> {
        let find = |name| Controller::find(root, scope, name);
        Ok(Self {
            root: root.to_owned(),
            scope: scope.filter(|scope| is_group_of_v2(scope)).map(Path::to_owned),
            cpu: find("cpu"),
            memory: find("memory"),
            cpuset: find("cpuset"),
            disk: find("io"),
            pids: find("pids"),
            record: ledger.book()?.groups,
            ledger,
            enter: |dir, pid| fs::write(dir.join(PROCS), pid.to_string()),
            limited: BTreeMap::new(),
            watched: Watched::default(),
        })
    }

    /// Creates groups that enter processes by `enter`.
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
            if !vm.needs(cpu) {
                return false;
            }
            let listed = Listed::of(&self.root, vm.pid);
            let dir = cpu.group(&listed, &vm.group());
            dir.is_some() && dir != cpu.home(&listed)
        };
        wanted(plan).into_iter().filter(moves).map(|vm| vm.pid).collect()
    }

    /// Returns the processes that [`Groups::clear`] will move out of their CPU group of cgroup v1.
    pub(super) fn leaving(&self, plan: &HostPlan) -> Vec<u32> {
        let Some(cpu) = self.cpu_of_v1() else { return Vec::new() };
        let wanted = by_group(&wanted(plan));
        let goes = |dir: &&PathBuf| dir.starts_with(&cpu.base) && !self.is_wanted(dir, &wanted);
        self.record.made.keys().filter(goes).flat_map(|dir| members(dir, PROCS)).collect()
    }

    /// Returns whether a folder is the group of one of these VMs, which needs it.
    fn is_wanted(&self, dir: &Path, wanted: &BTreeMap<String, Wanted<'_>>) -> bool {
        let name = dir.file_name().and_then(OsStr::to_str);
        let Some(vm) = name.and_then(|name| wanted.get(name)) else { return false };
        self.v1_of(dir).is_none_or(|controller| vm.needs(controller))
    }

    /// Returns the controller of cgroup v1 in whose hierarchy a folder is.
    fn v1_of(&self, dir: &Path) -> Option<&Controller> {
        let mut v1 = self.all_controllers().filter(|found| found.version() == Hierarchy::V1);
        v1.find(|found| dir.starts_with(&found.base))
    }

    fn cpu_of_v1(&self) -> Option<&Controller> {
        self.cpu.as_ref().filter(|found| found.version() == Hierarchy::V1)
    }

    /// Makes the groups of the plan and sets them. Nothing is made if the ledger cannot be written.
    pub(super) fn make(
        &mut self,
        plan: &HostPlan,
        now: Instant,
        report: &mut HostReport,
    ) -> Result<(), LedgerError> {
        for vm in report.vms.values_mut() {
            (vm.grouped, vm.group_problem, vm.weightless) = (false, None, None);
            vm.unlimited.clear();
        }
        let mut wanted = wanted(plan);
        self.limited.retain(|pid, _| plan.vms.values().any(|vm| vm.pid == *pid));
        // Reading all files of hundreds of groups in each round would take a pCPU.
        wanted.retain(|vm| {
            let Some(unlimited) = self.recently_unlimited(vm, now) else { return true };
            let told = report.vms.entry(vm.name.clone()).or_default();
            told.unlimited.extend(unlimited.iter().cloned());
            false
        });
        self.record_before(&wanted)?;
        for controller in self.controllers_for(&wanted) {
            if let Err(error) = controller.switch_on() {
                for vm in wanted.iter().filter(|vm| vm.settings.is_some()) {
                    let problem = format!("its control group cannot be made: {error}");
                    report.vms.entry(vm.name.clone()).or_default().group_problem = Some(problem);
                }
            }
        }
        for vm in &wanted {
            let told = report.vms.entry(vm.name.clone()).or_default();
            let Shortfall { problem, unlimited } = self.put(vm);
            self.note_limited(vm, &unlimited, now);
            told.unlimited.extend(unlimited);
            match problem {
                Some(problem) => drop(told.group_problem.get_or_insert(problem)),
                None if vm.settings.is_some() => {
                    told.grouped = true;
                    told.weightless = self.disk.as_ref().and_then(|disk| self.weightless(disk, vm));
                }
                None => {}
            }
        }
        Ok(())
    }

    /// Records the groups that are about to be made, and the controllers about to be enabled.
    fn record_before(&mut self, wanted: &[Wanted<'_>]) -> Result<(), LedgerError> {
        let mut next = self.record.clone();
        let wanted_groups: Vec<_> = wanted.iter().map(|vm| (vm, Listed::of(&self.root, vm.pid))).collect();
        for controller in self.controllers_for(wanted) {
            if let Some((folder, names)) = controller.to_switch_on() {
                next.switched_on.entry(folder).or_default().extend(names);
            }
            for (vm, listed) in wanted_groups.iter().filter(|(vm, _)| vm.needs(controller)) {
                if let Some(home) = controller.home(listed)
                    && let Some(dir) = controller.group(listed, &vm.group())
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
        let wanted = by_group(&wanted(plan));
        let mut next = self.record.clone();
        next.made.retain(|dir, home| {
            // If its former group no longer exists, a process goes to the group above.
            let homes: Vec<&Path> = [Some(home.as_path()), dir.parent()].into_iter().flatten().collect();
            // A group that is busy or has a subgroup is tried again.
            self.is_wanted(dir, &wanted) || dissolve(dir, PROCS, &homes).is_err()
        });
        if wanted.is_empty() && next.made.is_empty() {
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

    /// Returns the controllers that this host has. The disks' controller comes last: with cgroup v2
    /// it shares the others' group.
    fn all_controllers(&self) -> impl Iterator<Item = &Controller> {
        self.pids.iter().chain(&self.cpu).chain(&self.memory).chain(&self.cpuset).chain(&self.disk)
    }

    /// Returns the controllers whose groups these VMs need.
    fn controllers_for(&self, wanted: &[Wanted<'_>]) -> impl Iterator<Item = &Controller> {
        // Cpusets of cgroup v1 are made for pCPUs.
        let is_made_here = |found: &&Controller| found.name != "cpuset" || found.version() == Hierarchy::V2;
        self.all_controllers()
            .filter(is_made_here)
            .filter(move |found| wanted.iter().any(|vm| vm.needs(found)))
    }

    /// Returns why the weight of a VM's disk has no effect.
    fn weightless(&self, disk: &Controller, vm: &Wanted<'_>) -> Option<String> {
        vm.settings?.disk_shares?;
        let dir = disk.group(&Listed::of(&self.root, vm.pid), &vm.group())?;
        disk::weightless(&self.root, disk, &dir)
    }

    /// Makes and sets the groups of one VM, and moves its process there.
    fn put(&self, vm: &Wanted<'_>) -> Shortfall {
        let mut short = Shortfall { unlimited: self.without_controller(vm), ..Shortfall::default() };
        let mut entered = BTreeSet::new();
        // Entering a group of one hierarchy leaves the groups of the others as they are.
        let listed = Listed::of(&self.root, vm.pid);
        for controller in self.controllers_for(std::slice::from_ref(vm)) {
            let Some(dir) = controller.group(&listed, &vm.group()) else { continue };
            if !dir.exists() && !self.record.made.contains_key(&dir) {
                // The process has begun to end since the groups were recorded: cgroup v1 then names
                // the root as its group. A group made there would never be removed.
                continue;
            }
            let done = make_dir(&dir).and_then(|()| {
                short.unlimited.extend(self.set_limits(controller, vm, &dir));
                let set = set_shares(controller, vm, &dir);
                if set.is_err() && kind_of(controller).is_none() {
                    return set;
                }
                if !entered.contains(&dir) && controller.home(&listed).as_ref() != Some(&dir) {
                    (self.enter)(&dir, vm.pid).map_err(|error| cannot(&dir.join(PROCS), &error))?;
                }
                entered.insert(dir.clone());
                set
            });
            if let Err(problem) = done {
                let limit = vm.limits.and(kind_of(controller));
                short.unlimited.extend(limit.map(|limit| (limit, problem.clone())));
                short.problem = short.problem.or_else(|| vm.settings.map(|_| problem));
            }
        }
        self.neutralize(vm, &listed);
        short
    }

    /// Takes back the shares and reservations of a group that remains for its limits only. `listed`
    /// are the groups that the VM's process had before it entered this one.
    fn neutralize(&self, vm: &Wanted<'_>, listed: &Listed) {
        for controller in self.all_controllers().filter(|_| vm.settings.is_none()) {
            let Some(dir) = controller.group(listed, &vm.group()) else { continue };
            for (file, value) in controller.neutral_values() {
                let path = dir.join(file);
                if path.exists() {
                    // A failure is ignored: the old value affects only this VM.
                    let _ = put(&path, value);
                }
            }
        }
    }
}

/// Sets the shares, limits and reservations that a controller keeps for a VM.
fn set_shares(controller: &Controller, vm: &Wanted<'_>, dir: &Path) -> Result<(), String> {
    let Some(settings) = vm.settings else { return Ok(()) };
    let set = |path: &Path, value: &str| put(path, value).map_err(|error| cannot(path, &error));
    for (file, value) in controller.values(settings) {
        set(&dir.join(file), &value)?;
    }
    for (file, value) in controller.weights(settings) {
        let path = dir.join(file);
        if path.exists() {
            set(&path, &value)?;
        }
    }
    // With process limits, `limits::set` writes memory.swap.max.
    if (controller.name, controller.version()) == ("memory", Hierarchy::V2) && vm.limits.is_none() {
        allow_swap(dir, settings.no_swap).map_err(|error| cannot(dir, &error))?;
    }
    Ok(())
}

fn make_dir(dir: &Path) -> Result<(), String> {
    if dir.exists() { Ok(()) } else { fs::create_dir(dir).map_err(|error| cannot(dir, &error)) }
}

fn cannot(what: &Path, error: &io::Error) -> String {
    format!("{} cannot be set: {error}", what.display())
}

#[cfg(test)]
mod tests;
