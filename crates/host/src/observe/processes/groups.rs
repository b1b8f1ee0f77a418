//! Time in which the CPU limits of a machine's control groups kept it from running.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use crate::kernel::cgroup::controller::Controller;
use crate::kernel::cgroup::throttling;
use crate::kernel::shortage::unless_short;

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
    /// Time that each group was kept from running when its `cpu.stat` was last read, in
    /// nanoseconds; `None` until that file could be read.
    by_folder: BTreeMap<PathBuf, Option<u64>>,
    /// True if a look-up of the groups is due, or has failed.
    is_due: bool,
    throttled_ns: u64,
}

impl Groups {
    /// Adds for how long the groups of the process and of its threads were kept from running since
    /// the last time. Returns the sum. The groups are looked up if that is due. Fails only for want
    /// of descriptors or memory: the next call counts the time that this one has missed, and looks
    /// the groups up if this one could not.
    pub(super) fn read(
        &mut self,
        cpu: &Controller,
        process: &Path,
        threads: impl Iterator<Item = u32>,
        is_due: bool,
    ) -> io::Result<u64> {
        self.is_due |= is_due;
        if self.is_due {
            self.look_up(cpu, process, threads)?;
            self.is_due = false;
        }
        for (group, last) in &mut self.by_folder {
            let Some(now) = unless_short(throttling::throttled_ns(group))? else { continue };
            self.throttled_ns += now.saturating_sub(last.replace(now).unwrap_or(now));
        }
        Ok(self.throttled_ns)
    }

    /// Looks up which groups the process and its threads are in. A group stays until the groups of
    /// all threads are known.
    fn look_up(
        &mut self,
        cpu: &Controller,
        process: &Path,
        threads: impl Iterator<Item = u32>,
    ) -> io::Result<()> {
        let threads = threads.map(|tid| process.join(format!("task/{tid}/cgroup")));
        let mut found = BTreeSet::new();
        for listed in threads.chain([process.join("cgroup")]) {
            found.append(&mut throttling::limiting(cpu, &listed)?);
        }
        for group in &found {
            if !self.by_folder.contains_key(group) {
                // A group that the machine enters has the past of others behind it.
                let past = unless_short(throttling::throttled_ns(group))?;
                self.by_folder.insert(group.clone(), past);
            }
        }
        self.by_folder.retain(|group, _| found.contains(group));
        Ok(())
    }
}
