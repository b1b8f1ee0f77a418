//! Watching which limits VMs' processes have reached (row SE17).

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::time::{Duration, Instant};

use taut_api::Name;
use taut_api::enforcement::{Hierarchy, HostPlan, HostReport, LimitHits};

use super::Groups;
use super::wanted::{by_group, wanted};
use crate::kernel::cgroup::{group_name, limits, named_in};
use crate::kernel::descriptors;

/// Time between two looks at processes that run.
const INTERVAL: Duration = Duration::from_secs(1);
/// Processes that are looked at for each [`INTERVAL`] since the last look. Each of 200 processes is
/// looked at every 13 s on average, and every 20 s if looks are 10 s apart.
const EACH: u128 = 16;

/// The limits that processes have reached, as last seen.
#[derive(Debug, Default)]
pub(super) struct Watched {
    at: Option<Instant>,
    /// The last process that was looked at.
    last: Option<(Name, u32)>,
    hits: BTreeMap<(Name, u32), LimitHits>,
}

impl Watched {
    /// Returns the processes that are looked at now, of all that run.
    fn next_batch(&mut self, all: &BTreeSet<(Name, u32)>, now: Instant) -> BTreeSet<(Name, u32)> {
        let since = self.at.map_or(INTERVAL, |at| now.saturating_duration_since(at));
        let most = EACH * since.as_millis() / INTERVAL.as_millis();
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let after_last = |process: &&(Name, u32)| self.last.as_ref().is_some_and(|last| *process > last);
        let batch: Vec<_> =
            all.iter().filter(after_last).chain(all).take(most.min(all.len())).cloned().collect();
        self.last = batch.last().cloned();
        batch.into_iter().collect()
    }
}

impl Groups {
    /// Reports which limits processes have reached. The groups of processes that have ended are
    /// there until [`Groups::clear`], and are looked at once more.
    pub(in crate::enforce) fn watch(&mut self, plan: &HostPlan, now: Instant, report: &mut HostReport) {
        let wanted = by_group(&wanted(plan));
        let is_due = self.watched.at.is_none_or(|at| now.saturating_duration_since(at) >= INTERVAL);
        let batch = if is_due {
            self.watched.next_batch(&wanted.values().map(|vm| (vm.name.clone(), vm.pid)).collect(), now)
        } else {
            BTreeSet::new()
        };
        let mut seen = mem::take(&mut self.watched.hits);
        // Until it is looked at again, each process of the plan keeps what was last seen of it.
        seen.retain(|of, _| !batch.contains(of) && wanted.contains_key(&group_name(&of.0, of.1)));
        for dir in self.record.made.keys() {
            let Some(of) = named_in(dir) else { continue };
            if self.is_wanted(dir, &wanted) && !batch.contains(&of) {
                continue;
            }
            let hits = match self.v1_of(dir) {
                Some(controller) => limits::hits(Hierarchy::V1, controller.name, dir),
                None => limits::hits(Hierarchy::V2, "", dir),
            };
            let all = seen.entry(of).or_default();
            all.memory = all.memory.or(hits.memory);
            all.processes = all.processes.or(hits.processes);
        }
        for vm in wanted.values().filter(|vm| vm.limits.is_some()) {
            if batch.contains(&(vm.name.clone(), vm.pid))
                && let Some(near) = descriptors::near_limit(&self.root, vm.pid)
            {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_processes_are_looked_at_in_turns_and_few_all_at_once() {
        let process = |pid: u32| ("vm".parse::<Name>().unwrap(), pid);
        let mut watched = Watched::default();
        let few: BTreeSet<_> = (0..5).map(process).collect();
        let begin = Instant::now();
        assert!((0..3).all(|_| watched.next_batch(&few, begin) == few));
        let many: BTreeSet<_> = (0..200).map(process).collect();
        let turns: Vec<_> = (0..13).map(|_| watched.next_batch(&many, begin)).collect();
        assert!(turns.iter().all(|turn| turn.len() == 16));
        assert_eq!(turns.into_iter().flatten().collect::<BTreeSet<_>>(), many);
        watched.at = Some(begin);
        let after = |ms| begin + Duration::from_millis(ms);
        assert_eq!(watched.next_batch(&many, after(1500)).len(), 24, "the last look is longer ago");
        assert_eq!(watched.next_batch(&many, after(60_000)), many);
        assert_eq!(watched.next_batch(&BTreeSet::new(), after(1000)), BTreeSet::new());
    }
}
