//! One controller of control groups: where it is, and what its files are called.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{OVERHEAD, PERIOD_US, Wanted, disk};

/// Which kind of hierarchy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// One for each controller.
    V1,
    /// One for all.
    V2,
}

/// A controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Controller {
    name: &'static str,
    version: Version,
    /// Its hierarchy's uppermost folder; with cgroup v2 the one that VMs' groups are made in.
    pub(super) base: PathBuf,
}

impl Controller {
    /// Finds one of the name `cpu`, `memory`, `cpuset` or `io`, which cgroup v1 calls `blkio`. A hierarchy of its own comes first: the kernel has a controller only once.
    pub(super) fn find(root: &Path, scope: Option<&Path>, name: &'static str) -> Option<Self> {
        let mounts = root.join("sys/fs/cgroup");
        let (base, file) = match name {
            "cpu" => (mounts.join("cpu"), "cpu.shares"),
            "memory" => (mounts.join("memory"), "memory.limit_in_bytes"),
            "io" => (mounts.join("blkio"), "blkio.reset_stats"),
            _ => (mounts.join("cpuset"), "cpuset.cpus"),
        };
        if base.join(file).exists() {
            let name = if name == "io" { "blkio" } else { name };
            return Some(Self { name, version: Version::V1, base });
        }
        let scope = scope.filter(|scope| scope.join("cgroup.controllers").exists()).map(Path::to_owned);
        let common = scope.into_iter().chain([mounts.clone(), mounts.join("unified")]);
        let has = |folder: &PathBuf| {
            let text = fs::read_to_string(folder.join("cgroup.controllers")).unwrap_or_default();
            text.split_whitespace().any(|found| found == name)
        };
        common.into_iter().find(has).map(|base| Self { name, version: Version::V2, base })
    }

    /// Its hierarchy.
    pub const fn version(&self) -> Version {
        self.version
    }

    /// The folder that a process is in.
    pub(super) fn home(&self, root: &Path, pid: u32) -> Option<PathBuf> {
        let text = fs::read_to_string(root.join(format!("proc/{pid}/cgroup"))).ok()?;
        let path = text.lines().find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (names, path) = rest.split_once(':')?;
            let mine = match self.version {
                Version::V1 => names.split(',').any(|name| name == self.name),
                Version::V2 => names.is_empty(),
            };
            mine.then(|| path.trim_start_matches('/').to_owned())
        })?;
        // What is not below the mount is in a namespace of others: the top is as near as one gets.
        let folder = self.mount().join(&path);
        Some(if path.is_empty() || !folder.exists() { self.mount() } else { folder })
    }

    /// The folder of a VM's group: below its home, or in the scope.
    pub(super) fn group(&self, root: &Path, pid: u32, name: &str) -> Option<PathBuf> {
        match self.version {
            Version::V2 => Some(self.base.join(name)),
            Version::V1 => {
                let home = self.home(root, pid)?;
                Some(if home.ends_with(name) { home } else { home.join(name) })
            }
        }
    }

    /// The top of the hierarchy.
    fn mount(&self) -> PathBuf {
        if self.version == Version::V1 {
            return self.base.clone();
        }
        // A scope is a folder in it: upwards until there is no group any more.
        let group = |folder: &&Path| folder.join("cgroup.controllers").exists();
        self.base.ancestors().take_while(group).last().unwrap_or(&self.base).to_owned()
    }

    /// Files of a VM's group, and what they are to contain.
    pub(super) fn values(&self, vm: &Wanted) -> Vec<(&'static str, String)> {
        let quota = vm.cpu_limit.map(|thousandths| (thousandths * PERIOD_US / 1000).max(1000));
        let most =
            |bytes: Option<u64>| bytes.map_or_else(|| "max".to_owned(), |bytes| pages(bytes + OVERHEAD));
        match (self.name, self.version) {
            ("cpu", Version::V1) => vec![
                ("cpu.shares", (vm.cpu_shares * 1024 / 1000).clamp(2, 262_144).to_string()),
                ("cpu.cfs_period_us", PERIOD_US.to_string()),
                ("cpu.cfs_quota_us", quota.map_or_else(|| "-1".to_owned(), |quota| quota.to_string())),
            ],
            ("cpu", Version::V2) => vec![
                ("cpu.weight", (vm.cpu_shares / 10).clamp(1, 10_000).to_string()),
                (
                    "cpu.max",
                    quota.map_or_else(|| "max".to_owned(), |quota| quota.to_string())
                        + &format!(" {PERIOD_US}"),
                ),
            ],
            ("memory", Version::V1) => {
                vec![("memory.soft_limit_in_bytes", pages(vm.memory_low.0 + OVERHEAD))]
            }
            ("memory", Version::V2) => vec![
                ("memory.min", pages(vm.memory_min.0)),
                ("memory.low", pages(vm.memory_low.0 + OVERHEAD)),
                ("memory.high", most(vm.memory_high.map(|bytes| bytes.0))),
                ("memory.swap.max", if vm.no_swap { "0" } else { "max" }.to_owned()),
            ],
            _ => Vec::new(),
        }
    }

    /// Does the VM need a group of its?
    pub(super) fn is_for(&self, vm: &Wanted) -> bool {
        !matches!(self.name, "io" | "blkio") || vm.disk_shares.is_some()
    }

    /// Weights of a VM's disk, in whichever of these files the kernel has. Those of BFQ end at 1000.
    pub(super) fn weights(&self, vm: &Wanted) -> Vec<(&'static str, String)> {
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

    /// What [`Controller::switch_on`] will change: the folder, and this controller's name.
    pub(super) fn to_switch_on(&self) -> Option<(PathBuf, BTreeSet<String>)> {
        if self.version == Version::V1 {
            return None;
        }
        let text = fs::read_to_string(self.base.join(SWITCH)).unwrap_or_default();
        let on = text.split_whitespace().any(|name| name == self.name);
        (!on).then(|| (self.base.clone(), BTreeSet::from([self.name.to_owned()])))
    }

    /// Lets the groups in the scope have this controller.
    pub(super) fn switch_on(&self) -> io::Result<()> {
        match self.to_switch_on() {
            Some((folder, _)) => fs::write(folder.join(SWITCH), format!("+{}", self.name)),
            None => Ok(()),
        }
    }
}

/// Which controllers the groups in a folder have.
const SWITCH: &str = "cgroup.subtree_control";

/// Takes controllers back from the groups in a folder.
pub(super) fn switch_off(folder: &Path, names: &BTreeSet<String>) -> io::Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    let names: Vec<_> = names.iter().map(|name| format!("-{name}")).collect();
    fs::write(folder.join(SWITCH), names.join(" "))
}

/// The kernel counts in whole pages: what it answers is what was written.
fn pages(bytes: u64) -> String {
    (bytes & !4095).to_string()
}
