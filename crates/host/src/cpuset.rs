//! cpusets of cgroup v1: one for everybody else, one for each VM's vCPUs.
//!
//! A `scope` is the cpuset whose tasks are cleared off exclusive pCPUs: the whole host's, or the one that a container was given.
//! Its own tasks move into `taut.host` below it, which has all other pCPUs; cpusets of others below it lose the exclusive pCPUs
//! for the time. Kernel threads that are bound to their pCPU cannot be moved, and stay.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use taut_api::Name;

use crate::ledger::Wishes;
use crate::list;

/// Prefix of cpusets that are taut's.
const OURS: &str = "taut.";
/// Programs start others while they are moved: how often they are looked at again.
const SWEEPS: usize = 20;

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
        move_all(&self.scope, &self.host());
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
        let inside = tasks(&dir);
        for tid in tids {
            if !inside.contains(&tid) {
                fs::write(dir.join("tasks"), tid.to_string())?;
            }
        }
        Ok(())
    }

    /// Removes a VM's cpuset; its threads go where everybody else is.
    pub(crate) fn open(&self, vm: &Name) -> io::Result<()> {
        let home = if self.host().exists() { self.host() } else { self.scope.clone() };
        remove(&self.vm(vm), &home)
    }

    /// Everybody back to where they were.
    pub(crate) fn dissolve(&self) -> io::Result<()> {
        remove(&self.host(), &self.scope)
    }

    fn make(&self, dir: &Path, cpus: &BTreeSet<u32>) -> io::Result<()> {
        if !dir.exists() {
            fs::create_dir(dir)?;
        }
        put(&dir.join("cpuset.mems"), fs::read_to_string(self.scope.join("cpuset.mems"))?.trim_end())?;
        put(&dir.join("cpuset.cpus"), &list::format(cpus))
    }
}

fn put(path: &Path, value: &str) -> io::Result<()> {
    let before = fs::read_to_string(path).unwrap_or_default();
    if before.trim_end() == value { Ok(()) } else { fs::write(path, value) }
}

fn tasks(dir: &Path) -> BTreeSet<u32> {
    let text = fs::read_to_string(dir.join("tasks")).unwrap_or_default();
    text.lines().filter_map(|line| line.trim().parse().ok()).collect()
}

/// Moves every task that can be moved; thread by thread, since a process of a VM has vCPUs elsewhere.
fn move_all(from: &Path, to: &Path) {
    let mut stuck = BTreeSet::new();
    for _ in 0..SWEEPS {
        let there: Vec<u32> = tasks(from).difference(&stuck).copied().collect();
        if there.is_empty() {
            return;
        }
        for tid in there {
            if fs::write(to.join("tasks"), tid.to_string()).is_err() {
                stuck.insert(tid);
            }
        }
    }
}

fn remove(dir: &Path, home: &Path) -> io::Result<()> {
    for _ in 0..SWEEPS {
        if !dir.exists() {
            return Ok(());
        }
        move_all(dir, home);
        if fs::remove_dir(dir).is_ok() {
            return Ok(());
        }
        // A task that is ending is not in the list any more, and holds it up for a moment.
        thread::sleep(Duration::from_millis(1));
    }
    if dir.exists() { fs::remove_dir(dir) } else { Ok(()) }
}
