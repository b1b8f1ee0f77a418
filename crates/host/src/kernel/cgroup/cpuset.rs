//! cpusets of cgroup v1: one for each VM's vCPUs, one for all other tasks.
//!
//! The *scope* is the cpuset whose tasks are moved off exclusive pCPUs: the host's, or that of a
//! container. Its own tasks move into `taut.host` below it, which has all other pCPUs. Foreign
//! cpusets below it lose the exclusive pCPUs meanwhile. Kernel threads bound to a pCPU stay there.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use taut_api::Name;

use super::{admit_only, dissolve, move_all, put};
use crate::kernel::adjust::Adjustments;
use crate::kernel::list;

/// Prefix of the cpusets that taut makes.
const OURS: &str = "taut.";
/// File of a cpuset's threads. A VM's vCPUs are in another cpuset than its other threads.
const TASKS: &str = "tasks";

/// The cpusets below one scope.
#[derive(Debug, Clone)]
pub(crate) struct Cpusets {
    scope: PathBuf,
}

impl Cpusets {
    /// Finds the cpusets below `scope`, or the host's. Returns `None` if cgroup v1 has no cpusets.
    pub(crate) fn find(root: &Path, scope: Option<&Path>) -> Option<Self> {
        let scope = scope.map_or_else(|| root.join("sys/fs/cgroup/cpuset"), Path::to_owned);
        scope.join("cpuset.cpus").exists().then_some(Self { scope })
    }

    fn host(&self) -> PathBuf {
        self.scope.join(format!("{OURS}host"))
    }

    fn vm(&self, vm: &Name) -> PathBuf {
        self.scope.join(format!("{OURS}vm.{vm}"))
    }

    /// Returns the pCPUs of the scope.
    pub(crate) fn cpus(&self) -> BTreeSet<u32> {
        let text = fs::read_to_string(self.scope.join("cpuset.cpus")).unwrap_or_default();
        list::parse(&text).unwrap_or_default().into_iter().collect()
    }

    /// Returns the pCPUs of all other tasks: of their own cpuset while it exists.
    pub(crate) fn common(&self) -> Option<BTreeSet<u32>> {
        let host = fs::read_to_string(self.host().join("cpuset.cpus")).ok();
        let cpus = host
            .map_or_else(|| self.cpus(), |text| list::parse(&text).unwrap_or_default().into_iter().collect());
        (!cpus.is_empty()).then_some(cpus)
    }

    /// Takes the exclusive pCPUs out of every foreign cpuset. A cpuset that would be left without
    /// any keeps them.
    pub(crate) fn shrink_sets<'a>(&self, exclusive: &'a BTreeSet<u32>, adjustments: &mut Adjustments<'a>) {
        let mut folders = vec![self.scope.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                let ours = entry.file_name().to_string_lossy().starts_with(OURS);
                if ours || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    continue;
                }
                let shrink = move |before: &str| {
                    let after = list::without(before, exclusive)?;
                    (!after.is_empty()).then(|| list::format(&after))
                };
                adjustments.insert(entry.path().join("cpuset.cpus"), Box::new(shrink));
                folders.push(entry.path());
            }
        }
    }

    /// Moves the scope's own tasks off the exclusive pCPUs.
    pub(crate) fn evict_tasks(&self, exclusive: &BTreeSet<u32>) -> io::Result<()> {
        let left: BTreeSet<u32> = self.cpus().difference(exclusive).copied().collect();
        self.make(&self.host(), &left)?;
        move_all(&self.scope, TASKS, &[&self.host()]);
        Ok(())
    }

    /// Moves a VM's vCPU threads, and no others, into a cpuset of their own.
    pub(crate) fn enclose(
        &self,
        vm: &Name,
        cpus: &BTreeSet<u32>,
        tids: impl IntoIterator<Item = u32>,
    ) -> io::Result<()> {
        let dir = self.vm(vm);
        self.make(&dir, cpus)?;
        admit_only(&dir, TASKS, tids, &self.home())
    }

    /// Removes a VM's cpuset; its threads join all other tasks.
    pub(crate) fn release(&self, vm: &Name) -> io::Result<()> {
        dissolve(&self.vm(vm), TASKS, &[&self.home()])
    }

    /// The cpuset of all other tasks.
    fn home(&self) -> PathBuf {
        if self.host().exists() { self.host() } else { self.scope.clone() }
    }

    /// Moves all other tasks back to the scope and removes their cpuset.
    pub(crate) fn readmit_tasks(&self) -> io::Result<()> {
        dissolve(&self.host(), TASKS, &[&self.scope])
    }

    fn make(&self, dir: &Path, cpus: &BTreeSet<u32>) -> io::Result<()> {
        if !dir.exists() {
            fs::create_dir(dir)?;
        }
        put(&dir.join("cpuset.mems"), fs::read_to_string(self.scope.join("cpuset.mems"))?.trim_end())?;
        put(&dir.join("cpuset.cpus"), &list::format(cpus))
    }
}
