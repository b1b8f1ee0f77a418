//! Watching which limits VMs' processes have reached (row SE17).

use std::collections::BTreeMap;
use std::mem;
use std::time::{Duration, Instant};

use taut_api::Name;
use taut_api::enforcement::{HostPlan, HostReport, LimitHits};

use super::Groups;
use super::wanted::{by_group, wanted};
use crate::kernel::cgroup::{group_name, limits, named_in};
use crate::kernel::descriptors;

/// Time between two looks at a process that runs.
const INTERVAL: Duration = Duration::from_secs(1);

/// The limits that processes have reached, as last seen.
#[derive(Debug, Default)]
pub(super) struct Watched {
    at: Option<Instant>,
    hits: BTreeMap<(Name, u32), LimitHits>,
}

impl Groups {
    /// Reports which limits processes have reached. The groups of processes that have ended are
    /// there until [`Groups::clear`], and are looked at once more.
    pub(in crate::enforce) fn watch(&mut self, plan: &HostPlan, now: Instant, report: &mut HostReport) {
        let wanted = by_group(&wanted(plan));
        let is_due = self.watched.at.is_none_or(|at| now.saturating_duration_since(at) >= INTERVAL);
        let mut seen = mem::take(&mut self.watched.hits);
        // Between two looks, each process of the plan keeps what was last seen of it.
        seen.retain(|(name, pid), _| !is_due && wanted.contains_key(&group_name(name, *pid)));
        for dir in self.record.made.keys().filter(|dir| is_due || !self.is_wanted(dir, &wanted)) {
            let Some(of) = named_in(dir) else { continue };
            let hits = limits::hits(dir);
            let all = seen.entry(of).or_default();
            all.memory = all.memory.or(hits.memory);
            all.processes = all.processes.or(hits.processes);
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
}
