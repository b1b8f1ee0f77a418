//! cpusets of cgroup v1: one for everybody else, one for each VM's vCPUs.
//!
//! A `scope` is the cpuset whose tasks are cleared off exclusive pCPUs: the whole host's, or the one that a container was given.
//! Its own tasks move into `taut.host` below it, which has all other pCPUs; cpusets of others below it lose the exclusive pCPUs
//! for the time. Kernel threads that are bound to their pCPU cannot be moved, and stay.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use taut_api::Name;

use crate::folder::{dissolve, members, move_all, put};
use crate::ledger::Wishes;
use crate::list;

/// Prefix of cpusets that are taut's.
const OURS: &str = "taut.";
/// Threads of a cpuset: a process of a VM has its vCPUs elsewhere.
const TASKS: &str = "tasks";

/// The cpusets below one scope.
#[derive(Debug, Clone)]
pub(crate) struct Cpusets {
    scope: PathBuf,
}

impl Cpusets {
    /// The cpusets below `scope`, or below the host's own; nothing where cgroup v1 has no cpusets.
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

    /// pCPUs of the scope.
    pub(crate) fn cpus(&self) -> BTreeSet<u32> {
        let text = fs::read_to_string(self.scope.join("cpuset.cpus")).unwrap_or_default();
        list::parse(&text).unwrap_or_default().into_iter().collect()
    }

    /// pCPUs of everybody else: of their own cpuset while there is one.
    pub(crate) fn common(&self) -> Option<BTreeSet<u32>> {
        let host = fs::read_to_string(self.host().join("cpuset.cpus")).ok();
        let cpus = host
            .map_or_else(|| self.cpus(), |text| list::parse(&text).unwrap_or_default().into_iter().collect());
        (!cpus.is_empty()).then_some(cpus)
    }

    /// Adds a wish for each cpuset of others. One that has exclusive pCPUs only keeps them: it would have none.
    pub(crate) fn wishes<'a>(&self, exclusive: &'a BTreeSet<u32>, wishes: &mut Wishes<'a>) {
        let mut folders = vec![self.scope.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                let ours = entry.file_name().to_string_lossy().starts_with(OURS);
                if ours || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    continue;
                }
                let wish = move |before: &str| {
                    let after = list::without(before, exclusive)?;
                    (!after.is_empty()).then(|| list::format(&after))
                };
                wishes.insert(entry.path().join("cpuset.cpus"), Box::new(wish));
                folders.push(entry.path());
            }
        }
    }

    /// Moves the scope's tasks off the exclusive pCPUs.
    pub(crate) fn clear(&self, exclusive: &BTreeSet<u32>) -> io::Result<()> {
        let left: BTreeSet<u32> = self.cpus().difference(exclusive).copied().collect();
        self.make(&self.host(), &left)?;
        move_all(&self.scope, TASKS, &[&self.host()]);
        Ok(())
    }

    /// Moves a VM's vCPUs into their own cpuset.
    pub(crate) fn enclose(
        &self,
        vm: &Name,
        cpus: &BTreeSet<u32>,
        tids: impl IntoIterator<Item = u32>,
    ) -> io::Result<()> {
        let dir = self.vm(vm);
        self.make(&dir, cpus)?;
        let inside = members(&dir, TASKS);
        for tid in tids {
            if !inside.contains(&tid) {
                fs::write(dir.join(TASKS), tid.to_string())?;
            }
        }
        Ok(())
    }

    /// Removes a VM's cpuset; its threads go where everybody else is.
    pub(crate) fn open(&self, vm: &Name) -> io::Result<()> {
        let home = if self.host().exists() { self.host() } else { self.scope.clone() };
        dissolve(&self.vm(vm), TASKS, &[&home])
    }

    /// Everybody back to where they were.
    pub(crate) fn dissolve(&self) -> io::Result<()> {
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
