//! Setting the limits of VMs' processes (row SE17), before the first instruction of a program.

use std::path::Path;
use std::slice;
use std::time::{Duration, Instant};

use taut_api::Name;
use taut_api::enforcement::{HostPlan, HostReport, LimitKind, ProcessLimits};

use super::Groups;
use super::wanted::{Wanted, wanted};
use crate::kernel::cgroup::controller::{Controller, Listed};
use crate::kernel::cgroup::limits::{self, Unlimited};
use crate::ledger::LedgerError;

/// Time after which the limits of a process are checked, and set again if they have changed.
const INTERVAL: Duration = Duration::from_secs(60);

/// The limits that were set for a process.
#[derive(Debug)]
pub(super) struct LimitsSet {
    limits: ProcessLimits,
    /// Those that are not in force.
    unlimited: Vec<Unlimited>,
    at: Instant,
}

impl Groups {
    /// Puts a process that waits for its program into its groups, and limits it. The next plan has
    /// the same process and limits, and its report names the limits that are not in force.
    pub(in crate::enforce) fn limit(
        &mut self,
        name: &Name,
        pid: u32,
        limits: &ProcessLimits,
        now: Instant,
    ) -> Result<(), LedgerError> {
        let vm = Wanted { name, pid, settings: None, limits: Some(limits) };
        self.record_before(&[vm])?;
        for controller in self.controllers_for(&[vm]) {
            // Without the controller, its files are absent, which is reported.
            let _ = controller.switch_on();
        }
        let unlimited = self.put(&vm).unlimited;
        self.note_limited(&vm, &unlimited, now);
        Ok(())
    }

    /// Returns the limits of a process that are not in force, if these limits were set a short time
    /// ago and it has no shares, so its groups need no further look.
    pub(super) fn recently_unlimited(&self, vm: &Wanted<'_>, now: Instant) -> Option<&[Unlimited]> {
        let last = self.limited.get(&vm.pid).filter(|last| Some(&last.limits) == vm.limits)?;
        let is_recent = now.saturating_duration_since(last.at) < INTERVAL;
        (is_recent && vm.settings.is_none()).then_some(&last.unlimited)
    }

    /// Notes the limits of a process that has no shares, and those that are not in force.
    pub(super) fn note_limited(&mut self, vm: &Wanted<'_>, unlimited: &[Unlimited], now: Instant) {
        match vm.limits.filter(|_| vm.settings.is_none()) {
            Some(limits) => {
                let set = LimitsSet { limits: *limits, unlimited: unlimited.to_vec(), at: now };
                self.limited.insert(vm.pid, set);
            }
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
            Some(_) => {
                limits::without_controller(self.memory.is_some(), self.pids.is_some(), self.scope.as_deref())
            }
            None => Vec::new(),
        }
    }

    /// Reports the processes that could not be limited because the ledger cannot be kept.
    pub(in crate::enforce) fn note_unrecorded(&self, plan: &HostPlan, report: &mut HostReport) {
        let why = "its control group could not be recorded; hint: make room in the state directory";
        for vm in wanted(plan).iter().filter(|vm| vm.limits.is_some()) {
            let mut unlimited = self.without_controller(vm);
            let listed = Listed::of(&self.root, vm.pid);
            for controller in self.controllers_for(slice::from_ref(vm)) {
                let dir = controller.group(&listed, &vm.group());
                if dir.is_some_and(|dir| !self.record.made.contains_key(&dir)) {
                    unlimited.extend(kind_of(controller).map(|kind| (kind, why.to_owned())));
                }
            }
            let told = report.vms.entry(vm.name.clone()).or_default();
            for (kind, why) in unlimited {
                told.unlimited.entry(kind).or_insert(why);
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
