//! What keeps others off exclusive pCPUs: cpusets of cgroup v1 or partitions of cgroup v2, whichever the host has.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use taut_api::Name;

use crate::cpuset::Cpusets;
use crate::exclusive::Owner;
use crate::ledger::Wishes;
use crate::partition::Partitions;

/// Either kind. The kernel has the controller only once.
#[derive(Debug, Clone)]
pub(crate) enum Fence {
    /// cgroup v1: everybody else is moved into a cpuset without the exclusive pCPUs.
    Cpusets(Cpusets),
    /// cgroup v2: the exclusive pCPUs are taken from everybody else by the kernel.
    Partitions(Partitions),
}

impl Fence {
    /// What this host has, below `scope` or as a whole.
    pub(crate) fn find(root: &Path, scope: Option<&Path>) -> Option<Self> {
        let partitions = || Partitions::find(root, scope).map(Self::Partitions);
        // A scope of cgroup v2 has files of the same name.
        let common = scope.is_some_and(|scope| scope.join("cgroup.controllers").exists());
        if common { partitions() } else { Cpusets::find(root, scope).map(Self::Cpusets).or_else(partitions) }
    }

    /// pCPUs that everybody has who owns none, now; nothing when the kernel does not say.
    pub(crate) fn common(&self) -> Option<BTreeSet<u32>> {
        match self {
            Self::Cpusets(cpusets) => cpusets.common(),
            Self::Partitions(partitions) => partitions.common(),
        }
    }

    /// Adds wishes for files of others.
    pub(crate) fn wishes<'a>(&self, exclusive: &'a BTreeSet<u32>, wishes: &mut Wishes<'a>) {
        if let Self::Cpusets(cpusets) = self {
            cpusets.wishes(exclusive, wishes);
        }
    }

    /// Moves others off the exclusive pCPUs.
    pub(crate) fn clear(&self, exclusive: &BTreeSet<u32>) -> io::Result<()> {
        match self {
            Self::Cpusets(cpusets) => cpusets.clear(exclusive),
            Self::Partitions(_) => Ok(()),
        }
    }

    /// Gives a VM's vCPUs their pCPUs.
    pub(crate) fn enclose(
        &self,
        vm: &Name,
        owner: &Owner,
        tids: impl IntoIterator<Item = u32>,
    ) -> io::Result<()> {
        let cpus = || owner.cpus.iter().copied();
        match self {
            Self::Cpusets(cpusets) => cpusets.enclose(vm, &cpus().collect(), tids),
            Self::Partitions(partitions) => {
                partitions.enclose(vm, owner.pid, &cpus().chain(owner.idle.iter().copied()).collect(), tids)
            }
        }
    }

    /// Takes them back; its threads go where everybody else is.
    pub(crate) fn open(&self, vm: &Name) -> io::Result<()> {
        match self {
            Self::Cpusets(cpusets) => cpusets.open(vm),
            Self::Partitions(partitions) => partitions.open(vm),
        }
    }

    /// Everybody back to where they were.
    pub(crate) fn dissolve(&self) -> io::Result<()> {
        match self {
            Self::Cpusets(cpusets) => cpusets.dissolve(),
            Self::Partitions(_) => Ok(()),
        }
    }
}
