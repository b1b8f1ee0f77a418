//! Exclusive pCPUs: the plan's grants made so on the host, and taken back.

use std::collections::BTreeSet;
use std::path::Path;

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
        let placed = !self.wanted.is_empty() || !self.bound.is_empty() || !self.exclusive.is_empty();
        let cpus = if placed { topology::online(Path::new("/")).ok() } else { None };
        let mut seen = self.board.lock();
        seen.observed.restored = self.restored_at.is_some();
        seen.observed.exclusive = self.exclusive.vms().clone();
        if let Some(cpus) = cpus {
            seen.observed.cpus = cpus;
        }
    }

    /// Makes the host as the last plan wants it.
    pub(super) fn settle_exclusive(&mut self) {
        let processes = self.board.lock().observed.vms.clone();
        let pid = |name: &Name| Some(processes.get(name)?.process.as_ref()?.pid);
        let owner = |(name, grant): (&Name, &taut_plan::placement::Grant)| {
            let owner = Owner { pid: pid(name)?, cpus: grant.cpus.clone(), idle: grant.idle.clone() };
            Some((name.clone(), owner))
        };
        let bound = |(name, cpus): (&Name, &BTreeSet<u32>)| {
            Some((name.clone(), Bound { pid: pid(name)?, cpus: cpus.clone() }))
        };
        let wanted = Wanted {
            owners: self.wanted.iter().filter_map(owner).collect(),
            bound: self.bound.iter().filter_map(bound).collect(),
            poll_ns: self.poll_ns,
        };
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
        seen.observed.exclusive = self.exclusive.vms().clone();
        let before = std::mem::replace(&mut seen.observed.in_force, outcome.in_force.clone());
        let known = std::mem::replace(&mut seen.observed.host_problems, outcome.problems.clone());
        let unbound = std::mem::replace(&mut seen.observed.unbound, outcome.unbound.clone());
        seen.observed.fixed_interrupts = outcome
            .interrupts
            .into_iter()
            .map(|it| (it.cpus, format!("interrupt {} ({})", it.number, it.name), it.why))
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
        self.wanted.clear();
        self.bound.clear();
        self.poll_ns = None;
        self.memory.clear();
        self.entitled.clear();
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

    /// The daemon ends and no VM runs: nothing stays behind.
    pub(super) fn leave_host(&mut self) {
        if self.vms.any_running() {
            return;
        }
        self.give_devices_back();
        self.wanted.clear();
        self.bound.clear();
        self.poll_ns = None;
        self.entitled.clear();
        if let Err(error) = self.settle(&Wanted::default()) {
            tracing::warn!(%error, "the host could not be put back: the next daemon does it");
        }
        self.clear_groups();
        self.settle_precedence();
    }
}
