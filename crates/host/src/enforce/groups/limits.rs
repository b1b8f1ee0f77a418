//! Limits of VMs' processes (row SE17): set before the first instruction of a program, and watched.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use taut_api::Name;
use taut_api::enforcement::{HostPlan, HostReport, LimitHits, LimitKind, ProcessLimits};

use super::Groups;
use super::wanted::{Wanted, by_group, wanted};
use crate::kernel::cgroup::controller::Controller;
use crate::kernel::cgroup::limits::{self, Unlimited};
use crate::kernel::cgroup::named_in;
use crate::kernel::descriptors;
use crate::ledger::LedgerError;

/// Time between two looks at a process that runs.
const INTERVAL: Duration = Duration::from_secs(1);

/// The limits that processes have reached, as last seen.
#[derive(Debug, Default)]
pub(super) struct Watched {
    at: Option<Instant>,
    hits: BTreeMap<(Name, u32), LimitHits>,
}

impl Groups {
    /// Puts a process that waits for its program into its groups, and limits it. The next plan has
    /// the same process and limits, and its report names the limits that are not in force.
    pub(in crate::enforce) fn limit(
        &mut self,
        name: &Name,
        pid: u32,
        limits: &ProcessLimits,
    ) -> Result<(), LedgerError> {
        let vm = Wanted { name, pid, settings: None, limits: Some(limits) };
        self.record_before(&[vm])?;
        for controller in self.controllers_for(&[vm]) {
            // Without the controller, its files are absent, which is reported.
            let _ = controller.switch_on();
        }
        let unlimited = self.put(&vm).unlimited;
        self.note_limited(&vm, &unlimited);
        Ok(())
    }

    /// Returns whether a process has all limits that this host can keep, and needs nothing else.
    pub(super) fn is_limited(&self, vm: &Wanted<'_>) -> bool {
        vm.settings.is_none() && vm.limits.is_some() && self.limited.get(&vm.pid) == vm.limits
    }

    /// Notes whether a process has all limits that this host can keep, and needs nothing else.
    pub(super) fn note_limited(&mut self, vm: &Wanted<'_>, unlimited: &[Unlimited]) {
        let is_complete = unlimited == self.without_controller(vm);
        match vm.limits.filter(|_| vm.settings.is_none() && is_complete) {
            Some(limits) => drop(self.limited.insert(vm.pid, *limits)),
            None => drop(self.limited.remove(&vm.pid)),
        }
    }

    /// Sets the limits that a controller keeps for a VM. Returns those that could not be set.
    pub(super) fn set_limits(&self, controller: &Controller, vm: &Wanted<'_>, dir: &Path) -> Vec<Unlimited> {
        match vm.limits {
            Some(wanted) => limits::set(&self.root, controller, dir, wanted, vm.no_swap()),
            None => Vec::new(),
        }
    }

    /// Returns the limits of a VM that no controller of this host keeps.
    pub(super) fn without_controller(&self, vm: &Wanted<'_>) -> Vec<Unlimited> {
        match vm.limits {
            Some(_) => limits::without_controller(self.memory.is_some(), self.pids.is_some()),
            None => Vec::new(),
        }
    }

    /// Reports which limits processes have reached. The groups of processes that have ended are
    /// there until [`Groups::clear`], and are looked at once more.
    pub(in crate::enforce) fn watch(&mut self, plan: &HostPlan, now: Instant, report: &mut HostReport) {
        let wanted = by_group(&wanted(plan));
        let is_due = self.watched.at.is_none_or(|at| now.saturating_duration_since(at) >= INTERVAL);
        let mut seen: BTreeMap<(Name, u32), LimitHits> = BTreeMap::new();
        for dir in self.record.made.keys() {
            let Some(of) = named_in(dir) else { continue };
            if is_due || !self.is_wanted(dir, &wanted) {
                let hits = limits::hits(dir);
                let all = seen.entry(of).or_default();
                all.memory = all.memory.or(hits.memory);
                all.processes = all.processes.or(hits.processes);
            } else if let Some(last) = self.watched.hits.get(&of) {
                seen.insert(of, *last);
            }
        }
        for vm in wanted.values().filter(|vm| is_due && vm.limits.is_some()) {
            if let Some(near) = descriptors::near_limit(&self.root, vm.pid) {
                seen.entry((vm.name.clone(), vm.pid)).or_default().descriptors = Some(near);
            }
        }
        seen.retain(|_, hits| *hits != LimitHits::default());
        if is_due {
            self.watched.at = Some(now);
        }
        report.vms.values_mut().for_each(|vm| vm.hits.clear());
        for ((name, pid), hits) in &seen {
            report.vms.entry(name.clone()).or_default().hits.insert(*pid, *hits);
        }
        self.watched.hits = seen;
    }

    /// Reports the processes that could not be limited because the ledger cannot be kept.
    pub(in crate::enforce) fn note_unrecorded(&self, plan: &HostPlan, report: &mut HostReport) {
        for vm in wanted(plan).iter().filter(|vm| vm.limits.is_some() && !self.limited.contains_key(&vm.pid))
        {
            let told = report.vms.entry(vm.name.clone()).or_default();
            let why = "its control group could not be recorded; hint: make room in the state directory";
            for kind in [LimitKind::Memory, LimitKind::Processes] {
                told.unlimited.entry(kind).or_insert_with(|| why.to_owned());
            }
        }
    }
}

/// Returns the limit that a controller keeps.
pub(super) fn kind_of(controller: &Controller) -> Option<LimitKind> {
    match controller.name {
        "memory" => Some(LimitKind::Memory),
        "pids" => Some(LimitKind::Processes),
        _ => None,
    }
}
