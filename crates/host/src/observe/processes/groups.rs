//! Time in which the CPU limits of a machine's control groups kept it from running.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::kernel::cgroup::controller::Controller;
use crate::kernel::cgroup::throttling;

/// Number of readings after which the groups of a machine are to be looked up again. That happens
/// once the machine has run.
pub(super) const LOOKS_PER_GROUPS: u32 = 32;

/// Returns whether the groups of a process are to be looked up from this reading on. Not all
/// processes are due in the same one.
pub(super) const fn is_due(looks: u32, pid: u32) -> bool {
    looks.wrapping_add(pid).is_multiple_of(LOOKS_PER_GROUPS)
}

/// The groups of a machine.
#[derive(Debug, Default)]
pub(super) struct Groups {
    /// For how long each of them had been kept from running, in nanoseconds; nothing until that
    /// could be read.
    groups: BTreeMap<PathBuf, Option<u64>>,
    throttled_ns: u64,
}

impl Groups {
    /// Adds for how long the groups of the process and of its threads were kept from running since
    /// the last time. Returns the sum. The groups are looked up if that is due.
    pub(super) fn read(
        &mut self,
        cpu: &Controller,
        process: &Path,
        threads: impl Iterator<Item = u32>,
        is_due: bool,
    ) -> u64 {
        if is_due {
            let threads = threads.map(|tid| process.join(format!("task/{tid}/cgroup")));
            let listed = threads.chain([process.join("cgroup")]);
            let found: BTreeSet<_> = listed.flat_map(|listed| throttling::limiting(cpu, &listed)).collect();
            self.groups.retain(|group, _| found.contains(group));
            for group in found {
                // A group that the machine enters has the past of others behind it.
                let past = throttling::throttled_ns(&group);
                self.groups.entry(group).or_insert(past);
            }
        }
        for (group, last) in &mut self.groups {
            let Some(now) = throttling::throttled_ns(group) else { continue };
            self.throttled_ns += now.saturating_sub(last.replace(now).unwrap_or(now));
        }
        self.throttled_ns
    }
}
