//! Control groups: what the plan entitles each VM to, made so on the host, and taken back.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use taut_api::Name;
use taut_api::enforcement::{Controllers, Hierarchy, VmShare};
use taut_api::event::Level;
use taut_host::groups::{Groups, Outcome, Version, Wanted};
use taut_host::topology;

use super::Reconciler;
use crate::board::Board;

/// Notes on the board what this host's groups can do.
pub(super) fn note_controllers(groups: &Groups, board: &Board) {
    let hierarchy = |version| match version {
        None => Hierarchy::None,
        Some(Version::V1) => Hierarchy::V1,
        Some(Version::V2) => Hierarchy::V2,
    };
    let [cpu, memory, cpuset, disk] = groups.versions().map(hierarchy);
    let mut seen = board.lock();
    seen.observed.host.controllers = Controllers { cpu, memory, cpuset, disk };
    seen.observed.host.huge_pages = topology::free_huge_pages(Path::new("/"));
    seen.observed.host.swap_total = topology::swap_total(Path::new("/"));
}

impl Reconciler {
    /// Makes groups for the VMs that the last plan entitles to something, before anything is put below them, and before precedence is
    /// settled.
    pub(super) fn make_groups(&mut self) {
        let wanted = self.wanted_groups();
        self.precedence.pause(self.groups.arriving(&wanted));
        match self.groups.make(&wanted) {
            Ok(outcome) => self.note_groups(&outcome),
            Err(error) => tracing::warn!(%error, "no control group is made: it could not be noted"),
        }
    }

    /// Takes back the groups that no VM is entitled to any more, after everything below them, and before precedence is settled.
    pub(super) fn clear_groups(&mut self) {
        let wanted = self.wanted_groups();
        self.precedence.pause(self.groups.leaving(&wanted));
        if let Err(error) = self.groups.clear(&wanted) {
            tracing::warn!(%error, "that control groups are gone could not be noted");
        }
    }

    fn wanted_groups(&self) -> BTreeMap<Name, Wanted> {
        let of = |(name, share): (&Name, &VmShare)| {
            let group = share.group.as_ref()?;
            let wanted = Wanted {
                pid: share.pid,
                cpu_shares: group.cpu_shares,
                cpu_limit: group.cpu_limit,
                memory_min: group.memory_min,
                memory_low: group.memory_low,
                memory_high: group.memory_high,
                no_swap: group.no_swap,
                disk_shares: group.disk_shares,
            };
            Some((name.clone(), wanted))
        };
        self.host_plan.vms.iter().filter_map(of).collect()
    }

    fn note_groups(&self, outcome: &Outcome) {
        let mut seen = self.board.lock();
        let mut before: BTreeSet<Name> = BTreeSet::new();
        let mut known: BTreeMap<Name, String> = BTreeMap::new();
        for (name, vm) in &mut seen.report.vms {
            if std::mem::take(&mut vm.grouped) {
                before.insert(name.clone());
            }
            known.extend(vm.group_problem.take().map(|problem| (name.clone(), problem)));
            vm.weightless = None;
        }
        for name in &outcome.in_force {
            seen.report.vms.entry(name.clone()).or_default().grouped = true;
        }
        for (name, problem) in &outcome.problems {
            seen.report.vms.entry(name.clone()).or_default().group_problem = Some(problem.clone());
        }
        for (name, why) in &outcome.weightless {
            seen.report.vms.entry(name.clone()).or_default().weightless = Some(why.clone());
        }
        drop(seen);
        let event = |level, name: &Name, kind: &str, message: &str| {
            self.store.event(level, &format!("vm/{name}"), kind, message);
        };
        for name in outcome.in_force.difference(&before) {
            event(
                Level::Info,
                name,
                "resources.enforced",
                "it has a control group with its shares and limits",
            );
        }
        for (name, problem) in &outcome.problems {
            if known.get(name) != Some(problem) {
                event(Level::Warning, name, "resources.problem", problem);
            }
        }
    }
}
