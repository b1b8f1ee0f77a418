//! The fence around exclusive pCPUs: cpusets of cgroup v1, or partitions of cgroup v2.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use taut_api::Name;

use super::Owner;
use crate::kernel::adjust::Adjustments;
use crate::kernel::cgroup::cpuset::Cpusets;
use crate::kernel::cgroup::partition::Partitions;

/// The kind of fence that this host has. The kernel attaches the controller to one hierarchy only.
#[derive(Debug)]
pub(super) enum Fence {
    /// cgroup v1: all other tasks are moved into a cpuset without the exclusive pCPUs.
    Cpusets(Cpusets),
    /// cgroup v2: the kernel takes the exclusive pCPUs from all other tasks.
    Partitions(Partitions),
}

impl Fence {
    /// Finds the fence of this host, below `scope` or for the whole host.
    pub(super) fn find(root: &Path, scope: Option<&Path>) -> Option<Self> {
        let partitions = || Partitions::find(root, scope).map(Self::Partitions);
        // A scope of cgroup v2 has the files of a cpuset of cgroup v1 as well.
        let is_v2 = scope.is_some_and(|scope| scope.join("cgroup.controllers").exists());
        if is_v2 { partitions() } else { Cpusets::find(root, scope).map(Self::Cpusets).or_else(partitions) }
    }

    /// Returns the pCPUs of tasks that own none; `None` if the kernel does not tell.
    pub(super) fn common(&self) -> Option<BTreeSet<u32>> {
        match self {
            Self::Cpusets(cpusets) => cpusets.common(),
            Self::Partitions(partitions) => partitions.common(),
        }
    }

    /// Takes the exclusive pCPUs out of foreign cpusets.
    pub(super) fn shrink_sets<'a>(&self, exclusive: &'a BTreeSet<u32>, adjustments: &mut Adjustments<'a>) {
        if let Self::Cpusets(cpusets) = self {
            cpusets.shrink_sets(exclusive, adjustments);
        }
    }

    /// Moves other tasks off the exclusive pCPUs. Partitions need no such step.
    pub(super) fn evict_tasks(&self, exclusive: &BTreeSet<u32>) -> io::Result<()> {
        match self {
            Self::Cpusets(cpusets) => cpusets.evict_tasks(exclusive),
            Self::Partitions(_) => Ok(()),
        }
    }

    /// Puts a VM's vCPU threads behind the fence.
    pub(super) fn enclose(&self, owner: &Owner<'_>, tids: impl IntoIterator<Item = u32>) -> io::Result<()> {
        let Owner { name, pid, cpus, idle } = owner;
        let cpus = cpus.iter().copied();
        match self {
            Self::Cpusets(cpusets) => cpusets.enclose(name, &cpus.collect(), tids),
            Self::Partitions(partitions) => {
                partitions.enclose(name, *pid, &cpus.chain(idle.iter().copied()).collect(), tids)
            }
        }
    }

    /// Removes a VM's fence; its threads join all other tasks.
    pub(super) fn release(&self, vm: &Name) -> io::Result<()> {
        match self {
            Self::Cpusets(cpusets) => cpusets.release(vm),
            Self::Partitions(partitions) => partitions.release(vm),
        }
    }

    /// Moves all other tasks back to where they were.
    pub(super) fn readmit_tasks(&self) -> io::Result<()> {
        match self {
            Self::Cpusets(cpusets) => cpusets.readmit_tasks(),
            Self::Partitions(_) => Ok(()),
        }
    }
}
