//! One controller of control groups: its hierarchy, its files, and their values.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use taut_api::enforcement::{GroupSettings, Hierarchy, ProcessLimits};

use super::disk;

/// Memory that QEMU needs beside the guest's: devices, threads, translated code.
const OVERHEAD: u64 = 128 << 20;
/// Period over which a CPU limit is enforced, in microseconds.
const PERIOD_US: u64 = 100_000;
/// File that lists the controllers enabled for a folder's subgroups (cgroup v2).
const SWITCH: &str = "cgroup.subtree_control";

/// A controller that this host can use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Controller {
    pub(crate) name: &'static str,
    version: Hierarchy,
    /// Root of the hierarchy (cgroup v1), or the group in which VMs' groups are made (cgroup v2).
    pub(crate) base: PathBuf,
}

/// The control groups of a process or thread, one for each hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed(String);

impl Listed {
    /// Reads the groups of a process. One that has ended is in none.
    pub(crate) fn of(root: &Path, pid: u32) -> Self {
        let read = Self::read(&root.join(format!("proc/{pid}/cgroup")));
        read.unwrap_or_else(|_| Self(String::new()))
    }

    /// Reads a file `cgroup` in the folder of a process or thread.
    pub(crate) fn read(file: &Path) -> io::Result<Self> {
        fs::read_to_string(file).map(Self)
    }
}

impl Controller {
    /// Finds the controller `cpu`, `memory`, `cpuset`, `pids` or `io` (`blkio` in cgroup v1). A
    /// hierarchy of its own takes precedence, since the kernel attaches a controller to one
    /// hierarchy only.
    ///
    /// A scope of cgroup v2 must have the controller itself. A process is in one group of cgroup
    /// v2, so a group elsewhere would not hold it.
    pub(crate) fn find(root: &Path, scope: Option<&Path>, name: &'static str) -> Option<Self> {
        let mounts = root.join("sys/fs/cgroup");
        let (base, file) = match name {
            "cpu" => (mounts.join("cpu"), "cpu.shares"),
            "memory" => (mounts.join("memory"), "memory.limit_in_bytes"),
            "io" => (mounts.join("blkio"), "blkio.reset_stats"),
            // The root of this hierarchy has no file of its own controller.
            "pids" => (mounts.join("pids"), "cgroup.procs"),
            _ => (mounts.join("cpuset"), "cpuset.cpus"),
        };
        if base.join(file).exists() {
            let name = if name == "io" { "blkio" } else { name };
            return Some(Self { name, version: Hierarchy::V1, base });
        }
        let common = match scope.filter(|scope| is_group_of_v2(scope)) {
            Some(scope) => vec![scope.to_owned()],
            None => vec![mounts.clone(), mounts.join("unified")],
        };
        let has = |folder: &PathBuf| {
            let text = fs::read_to_string(folder.join("cgroup.controllers")).unwrap_or_default();
            text.split_whitespace().any(|found| found == name)
        };
        common.into_iter().find(has).map(|base| Self { name, version: Hierarchy::V2, base })
    }

    /// Returns the version of the hierarchy.
    pub(crate) const fn version(&self) -> Hierarchy {
        self.version
    }

    /// Returns the folder of the group that a process or thread is in.
    pub(crate) fn home(&self, listed: &Listed) -> Option<PathBuf> {
        let path = listed.0.lines().find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (names, path) = rest.split_once(':')?;
            let mine = match self.version {
                Hierarchy::V1 => names.split(',').any(|name| name == self.name),
                Hierarchy::V2 | Hierarchy::None => names.is_empty(),
            };
            mine.then(|| path.trim_start_matches('/'))
        })?;
        // A group outside this mount belongs to another namespace; the root is the nearest to it.
        let folder = self.mount().join(path);
        Some(if path.is_empty() || !folder.exists() { self.mount() } else { folder })
    }

    /// Returns the folder of a VM's group: below the process's own group (v1), or in the scope
    /// (v2).
    pub(crate) fn group(&self, listed: &Listed, name: &str) -> Option<PathBuf> {
        match self.version {
            Hierarchy::V2 | Hierarchy::None => Some(self.base.join(name)),
            Hierarchy::V1 => {
                let home = self.home(listed)?;
                Some(if home.ends_with(name) { home } else { home.join(name) })
            }
        }
    }

    /// Returns the root of the hierarchy.
    pub(crate) fn mount(&self) -> PathBuf {
        if self.version == Hierarchy::V1 {
            return self.base.clone();
        }
        // The scope is a folder of the hierarchy: its last ancestor that is a group is the root.
        let groups = self.base.ancestors().take_while(|folder| is_group_of_v2(folder));
        groups.last().unwrap_or(&self.base).to_owned()
    }

    /// Returns the files of a VM's shares and reservations, and the value of each.
    pub(crate) fn values(&self, vm: &GroupSettings) -> Vec<(&'static str, String)> {
        let quota = vm.cpu_limit.map(|thousandths| (thousandths * PERIOD_US / 1000).max(1000));
        let most =
            |bytes: Option<u64>| bytes.map_or_else(|| "max".to_owned(), |bytes| pages(bytes + OVERHEAD));
        match (self.name, self.version) {
            ("cpu", Hierarchy::V1) => vec![
                ("cpu.shares", (vm.cpu_shares * 1024 / 1000).clamp(2, 262_144).to_string()),
                ("cpu.cfs_period_us", PERIOD_US.to_string()),
                ("cpu.cfs_quota_us", quota.map_or_else(|| "-1".to_owned(), |quota| quota.to_string())),
            ],
            ("cpu", Hierarchy::V2) => vec![
                ("cpu.weight", (vm.cpu_shares / 10).clamp(1, 10_000).to_string()),
                (
                    "cpu.max",
                    quota.map_or_else(|| "max".to_owned(), |quota| quota.to_string())
                        + &format!(" {PERIOD_US}"),
                ),
            ],
            ("memory", Hierarchy::V1) => {
                vec![("memory.soft_limit_in_bytes", pages(vm.memory_low.0 + OVERHEAD))]
            }
            ("memory", Hierarchy::V2) => vec![
                ("memory.min", pages(vm.memory_min.0)),
                ("memory.low", pages(vm.memory_low.0 + OVERHEAD)),
                ("memory.high", most(vm.memory_high.map(|bytes| bytes.0))),
            ],
            _ => Vec::new(),
        }
    }

    /// Returns the files of a group without shares and reservations, and the value that a new group
    /// has in each. A kernel may lack some.
    pub(crate) fn neutral_values(&self) -> Vec<(&'static str, &'static str)> {
        match (self.name, self.version) {
            ("cpu", Hierarchy::V2) => vec![("cpu.weight", "100"), ("cpu.max", "max 100000")],
            // The largest number of pages of 4 KiB.
            ("memory", Hierarchy::V1) => vec![("memory.soft_limit_in_bytes", "9223372036854771712")],
            ("memory", Hierarchy::V2) => {
                vec![("memory.min", "0"), ("memory.low", "0"), ("memory.high", "max")]
            }
            ("io", Hierarchy::V2) => vec![(disk::IO, "default 100"), (disk::BFQ, "default 100")],
            _ => Vec::new(),
        }
    }

    /// Returns whether a VM needs a group of this controller.
    pub(crate) fn is_for(&self, vm: Option<&GroupSettings>, limits: Option<&ProcessLimits>) -> bool {
        match self.name {
            "pids" => limits.is_some(),
            "memory" => limits.is_some() || vm.is_some(),
            "io" | "blkio" => vm.is_some_and(|vm| vm.disk_shares.is_some()),
            _ => vm.is_some(),
        }
    }

    /// Returns the weights of a VM's disk, for those of the files that the kernel has. BFQ's
    /// maximum is 1000.
    pub(crate) fn weights(&self, vm: &GroupSettings) -> Vec<(&'static str, String)> {
        let weight = |most| vm.disk_shares.map(|shares| (shares / 10).clamp(1, most));
        let (all, bfq) = (weight(10_000), weight(1000));
        let files = match self.name {
            "io" => vec![
                (disk::IO, all.map(|it| format!("default {it}"))),
                (disk::BFQ, bfq.map(|it| format!("default {it}"))),
            ],
            "blkio" => vec![(disk::BFQ_V1, bfq.map(|it| it.to_string()))],
            _ => Vec::new(),
        };
        files.into_iter().filter_map(|(file, value)| Some((file, value?))).collect()
    }

    /// Returns what [`Controller::switch_on`] would change: the folder, and this controller's name.
    pub(crate) fn to_switch_on(&self) -> Option<(PathBuf, BTreeSet<String>)> {
        if self.version == Hierarchy::V1 {
            return None;
        }
        let text = fs::read_to_string(self.base.join(SWITCH)).unwrap_or_default();
        let on = text.split_whitespace().any(|name| name == self.name);
        (!on).then(|| (self.base.clone(), BTreeSet::from([self.name.to_owned()])))
    }

    /// Enables this controller for the groups in the scope.
    pub(crate) fn switch_on(&self) -> io::Result<()> {
        match self.to_switch_on() {
            Some((folder, _)) => fs::write(folder.join(SWITCH), format!("+{}", self.name)),
            None => Ok(()),
        }
    }
}

/// Returns whether a folder is a group of cgroup v2.
pub(crate) fn is_group_of_v2(folder: &Path) -> bool {
    folder.join("cgroup.controllers").exists()
}

/// Disables controllers for the groups in a folder.
pub(crate) fn switch_off(folder: &Path, names: &BTreeSet<String>) -> io::Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    let names: Vec<_> = names.iter().map(|name| format!("-{name}")).collect();
    fs::write(folder.join(SWITCH), names.join(" "))
}

/// Rounds down to whole pages, as the kernel does, so that the value reads back as written.
pub(super) fn pages(bytes: u64) -> String {
    (bytes & !4095).to_string()
}
