//! Exclusive pCPUs: the plan's grants made so on the host, and taken back.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use taut_api::enforcement::{CpuShare, FixedInterrupt, HostPlan, HostReport, VmShare};
use taut_api::error::ErrorKind;
use taut_api::event::Level;
use taut_api::{ApiError, Name};
use taut_host::exclusive::{Bound, Owner, Wanted};
use taut_host::topology;

use super::Reconciler;

impl Reconciler {
    /// pCPUs come and go; what is in force is what was done.
    pub(super) fn look_at_host(&mut self) {
        let revision = self.store.state().revision;
        self.restored_at = self.restored_at.filter(|at| *at == revision);
        let placed =
            self.host_plan.vms.values().any(|vm| vm.cpus != CpuShare::Any) || !self.exclusive.is_empty();
        let cpus = if placed { topology::online(Path::new("/")).ok() } else { None };
        let mut seen = self.board.lock();
        seen.observed.restored = self.restored_at.is_some();
        note_owners(&mut seen.report, self.exclusive.vms());
        if let Some(cpus) = cpus {
            seen.observed.host.cpus = cpus;
        }
    }

    /// Makes the host as the last plan wants it.
    pub(super) fn settle_exclusive(&mut self) {
        let wanted = wanted(&self.host_plan);
        if let Err(error) = self.settle(&wanted) {
            tracing::warn!(%error, "nothing is changed on the host: it could not be noted");
        }
    }

    fn settle(&mut self, wanted: &Wanted) -> Result<(), ApiError> {
        self.exclusive.place_interrupts(self.interrupts_of_devices());
        let outcome = self.exclusive.settle(wanted).map_err(|error| {
            ApiError::new(
                ErrorKind::Unavailable,
                "what is changed on the host for VMs cannot be noted, so nothing is changed",
                "make room in the state directory, or remove the file that the cause names if it is damaged",
            )
            .because(&error)
        })?;
        let mut seen = self.board.lock();
        let report = &mut seen.report;
        note_owners(report, self.exclusive.vms());
        let before: BTreeSet<Name> =
            report.vms.iter().filter(|(_, vm)| vm.exclusive).map(|(name, _)| name.clone()).collect();
        let unbound: BTreeMap<Name, String> =
            report.vms.iter().filter_map(|(name, vm)| Some((name.clone(), vm.unbound.clone()?))).collect();
        report.vms.values_mut().for_each(|vm| (vm.exclusive, vm.unbound) = (false, None));
        for name in &outcome.in_force {
            report.vms.entry(name.clone()).or_default().exclusive = true;
        }
        for (name, why) in &outcome.unbound {
            report.vms.entry(name.clone()).or_default().unbound = Some(why.clone());
        }
        let known = std::mem::replace(&mut report.cpu_problems, outcome.problems.clone());
        report.fixed_interrupts = outcome
            .interrupts
            .into_iter()
            .map(|it| FixedInterrupt { number: it.number, drivers: it.name, cpus: it.cpus, why: it.why })
            .collect();
        drop(seen);
        let event = |level, name: &Name, kind: &str, message: &str| {
            self.store.event(level, &format!("vm/{name}"), kind, message);
        };
        for name in outcome.in_force.difference(&before) {
            let owner = &wanted.owners[name];
            let idle =
                if owner.idle.is_empty() { String::new() } else { format!("; {:?} stay idle", owner.idle) };
            event(
                Level::Info,
                name,
                "latency.granted",
                &format!("its vCPUs own pCPUs {:?}{idle}", owner.cpus),
            );
        }
        for name in before.difference(&outcome.in_force) {
            event(Level::Info, name, "latency.taken-back", "its pCPUs are the host's again");
        }
        for (name, why) in outcome.unbound.iter().filter(|(name, why)| unbound.get(*name) != Some(*why)) {
            event(Level::Warning, name, "placement.not-bound", why);
        }
        for problem in outcome.problems.iter().filter(|problem| !known.contains(problem)) {
            self.store.event(Level::Warning, "host", "latency.problem", problem);
        }
        Ok(())
    }

    /// Puts back everything that was changed on the host, and leaves it so until a document changes.
    pub(super) fn restore_host(&mut self) -> Result<(), ApiError> {
        self.restored_at = Some(self.store.state().revision);
        self.board.lock().observed.restored = true;
        self.take_everything_back();
        self.settle(&Wanted::default())?;
        self.make_groups();
        self.clear_groups();
        self.settle_precedence();
        self.store.event(
            Level::Info,
            "host",
            "latency.restored",
            "everything that was changed for latency, shares and limits is put back",
        );
        Ok(())
    }

    /// Makes the wanted state of the host one in which VMs have nothing.
    fn take_everything_back(&mut self) {
        self.grants.clear();
        let bare = |share: &VmShare| VmShare { pid: share.pid, ..VmShare::default() };
        let vms = self.host_plan.vms.iter().map(|(name, share)| (name.clone(), bare(share))).collect();
        self.host_plan = HostPlan { vms, ..HostPlan::default() };
    }

    /// The daemon ends and no VM runs: nothing stays behind.
    pub(super) fn leave_host(&mut self) {
        if self.vms.any_running() {
            return;
        }
        self.give_devices_back();
        self.take_everything_back();
        if let Err(error) = self.settle(&Wanted::default()) {
            tracing::warn!(%error, "the host could not be put back: the next daemon does it");
        }
        self.clear_groups();
        self.settle_precedence();
    }
}

/// What the plan wants of exclusive and shared pCPUs.
fn wanted(plan: &HostPlan) -> Wanted {
    let mut wanted = Wanted { poll_ns: plan.poll_ns, ..Wanted::default() };
    for (name, VmShare { pid, cpus, .. }) in &plan.vms {
        match cpus.clone() {
            CpuShare::Any => {}
            CpuShare::Bound(cpus) => drop(wanted.bound.insert(name.clone(), Bound { pid: *pid, cpus })),
            CpuShare::Exclusive { cpus, idle } => {
                wanted.owners.insert(name.clone(), Owner { pid: *pid, cpus, idle });
            }
        }
    }
    wanted
}

/// Notes the pCPUs that VMs own.
fn note_owners(report: &mut HostReport, owners: &BTreeMap<Name, Vec<u32>>) {
    report.vms.values_mut().for_each(|vm| vm.cpus.clear());
    for (name, cpus) in owners {
        report.vms.entry(name.clone()).or_default().cpus.clone_from(cpus);
    }
}
