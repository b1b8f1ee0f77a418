//! Partitions of cgroup v2: a VM's vCPUs in an `isolated` one, which takes its pCPUs from everybody else.
//!
//! A VM's control group (`taut.vm.NAME.PID`, [`crate::groups`]) gets a threaded group `vcpus` below it; QEMU's other threads stay
//! above. Since the group itself is no partition, that takes a kernel that knows `cpuset.cpus.exclusive` (Linux 6.7). Idle siblings
//! are in the partition and run nothing.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use taut_api::Name;

use crate::folder::{dissolve, members, put};
use crate::list;

/// Name of the group of a VM's vCPUs.
const VCPUS: &str = "vcpus";
/// The pCPUs that a group keeps from its siblings.
const EXCLUSIVE: &str = "cpuset.cpus.exclusive";
/// What a group is: `member`, `root`, `isolated`, or `isolated invalid (why)`.
const PARTITION: &str = "cpuset.cpus.partition";
/// Threads of a threaded group.
const THREADS: &str = "cgroup.threads";

/// The partitions below one scope.
#[derive(Debug, Clone)]
pub(crate) struct Partitions {
    scope: PathBuf,
}

impl Partitions {
    /// Those below `scope`, or below the topmost group; nothing where cgroup v2 has no cpusets.
    pub(crate) fn find(root: &Path, scope: Option<&Path>) -> Option<Self> {
        let mounts = root.join("sys/fs/cgroup");
        let scope = scope
            .map_or_else(|| vec![mounts.clone(), mounts.join("unified")], |scope| vec![scope.to_owned()]);
        let has = |folder: &PathBuf| {
            let text = fs::read_to_string(folder.join("cgroup.controllers")).unwrap_or_default();
            text.split_whitespace().any(|name| name == "cpuset")
        };
        scope.into_iter().find(has).map(|scope| Self { scope })
    }

    /// pCPUs that no partition has taken.
    pub(crate) fn common(&self) -> Option<BTreeSet<u32>> {
        let text = fs::read_to_string(self.scope.join("cpuset.cpus.effective")).ok()?;
        let cpus: BTreeSet<u32> = list::parse(&text).ok()?.into_iter().collect();
        (!cpus.is_empty()).then_some(cpus)
    }

    /// Gives the VM's vCPUs a partition with these pCPUs.
    pub(crate) fn enclose(
        &self,
        vm: &Name,
        pid: u32,
        cpus: &BTreeSet<u32>,
        tids: impl IntoIterator<Item = u32>,
    ) -> io::Result<()> {
        let group = self.scope.join(format!("taut.vm.{vm}.{pid}"));
        let vcpus = group.join(VCPUS);
        let list = list::format(cpus);
        if !group.exists() {
            return Err(io::Error::other("it has no control group"));
        }
        if !vcpus.exists() {
            fs::create_dir(&vcpus)?;
        }
        // In this order: a group with processes may only have controllers that work by threads, and only once it has such groups.
        put(&vcpus.join("cgroup.type"), "threaded")?;
        let on = fs::read_to_string(group.join("cgroup.subtree_control")).unwrap_or_default();
        if !on.split_whitespace().any(|name| name.trim_start_matches('+') == "cpuset") {
            fs::write(group.join("cgroup.subtree_control"), "+cpuset")?;
        }
        if !knows_exclusive(&group) {
            return Err(io::Error::other(
                "an isolated partition below a VM's control group takes cpuset.cpus.exclusive, which Linux has from 6.7 on",
            ));
        }
        put(&group.join(EXCLUSIVE), &list)?;
        put(&vcpus.join("cpuset.cpus"), &list)?;
        put(&vcpus.join(EXCLUSIVE), &list)?;
        put(&vcpus.join(PARTITION), "isolated")?;
        let state = fs::read_to_string(vcpus.join(PARTITION))?;
        if state.trim_end() != "isolated" {
            return Err(io::Error::other(format!("the kernel says of its partition: {}", state.trim_end())));
        }
        let inside = members(&vcpus, THREADS);
        for tid in tids {
            if !inside.contains(&tid) {
                fs::write(vcpus.join(THREADS), tid.to_string())?;
            }
        }
        Ok(())
    }

    /// Removes the partitions of a VM, whichever process it had; its threads go to the group above.
    pub(crate) fn open(&self, vm: &Name) -> io::Result<()> {
        for group in self.groups(vm) {
            let vcpus = group.join(VCPUS);
            if !vcpus.exists() {
                continue;
            }
            // First its pCPUs become everybody's again: nobody can move into a group without any.
            let _ = fs::write(vcpus.join(PARTITION), "member");
            dissolve(&vcpus, THREADS, &[&group])?;
            let _ = fs::write(group.join(EXCLUSIVE), "\n");
            fs::write(group.join("cgroup.subtree_control"), "-cpuset")?;
        }
        Ok(())
    }

    /// Groups of all processes that the VM had.
    fn groups(&self, vm: &Name) -> Vec<PathBuf> {
        let prefix = format!("taut.vm.{vm}.");
        let entries = fs::read_dir(&self.scope).into_iter().flatten().flatten();
        let mine = |name: &str| name.strip_prefix(&prefix).is_some_and(|pid| pid.parse::<u32>().is_ok());
        entries
            .filter(|entry| entry.file_name().to_str().is_some_and(mine))
            .map(|entry| entry.path())
            .collect()
    }
}

/// Does the kernel let a group keep pCPUs that is no partition itself?
#[cfg(not(test))]
fn knows_exclusive(group: &Path) -> bool {
    group.join(EXCLUSIVE).exists()
}

/// A folder that plays a group has the file if the one above it does.
#[cfg(test)]
fn knows_exclusive(group: &Path) -> bool {
    group.parent().is_some_and(|above| above.join("linux-6.7").exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(exclusive: bool) -> (tempfile::TempDir, Partitions, PathBuf) {
        let root = tempfile::tempdir().unwrap();
        let mount = root.path().join("sys/fs/cgroup");
        let group = mount.join("taut.vm.db.1.77");
        fs::create_dir_all(&group).unwrap();
        fs::write(mount.join("cgroup.controllers"), "cpuset cpu memory\n").unwrap();
        if exclusive {
            fs::write(mount.join("linux-6.7"), "").unwrap();
        }
        let partitions = Partitions::find(root.path(), None).unwrap();
        (root, partitions, group)
    }

    #[test]
    fn vcpus_get_an_isolated_partition_and_lose_it() {
        let (_root, partitions, group) = host(true);
        let vm: Name = "db.1".parse().unwrap();
        partitions.enclose(&vm, 77, &[2, 3, 6].into(), [80]).unwrap();
        let read =
            |path: &str| fs::read_to_string(group.join(path)).unwrap_or_else(|error| error.to_string());
        for (path, content) in [
            ("vcpus/cgroup.type", "threaded"),
            ("cgroup.subtree_control", "+cpuset"),
            ("cpuset.cpus.exclusive", "2-3,6"),
            ("vcpus/cpuset.cpus", "2-3,6"),
            ("vcpus/cpuset.cpus.exclusive", "2-3,6"),
            ("vcpus/cpuset.cpus.partition", "isolated"),
            ("vcpus/cgroup.threads", "80"),
        ] {
            assert_eq!(read(path), content, "{path}");
        }
        // Another VM whose name begins the same is another matter.
        partitions.open(&"db".parse().unwrap()).unwrap();
        assert!(group.join("vcpus").exists());
        partitions.open(&vm).unwrap();
        assert!(!group.join("vcpus").exists());
        assert_eq!((read("cgroup.threads"), read("cpuset.cpus.exclusive")), ("80".into(), "\n".into()));
    }

    #[test]
    fn what_the_kernel_refuses_is_told() {
        let (_root, partitions, group) = host(true);
        let vm: Name = "db.1".parse().unwrap();
        let refused = |pid| partitions.enclose(&vm, pid, &[2].into(), []).unwrap_err().to_string();
        assert!(refused(1).contains("no control group"));
        fs::create_dir(group.join("vcpus")).unwrap();
        // As a kernel answers: what was written is not what is read.
        std::os::unix::fs::symlink("/dev/null", group.join("vcpus").join(PARTITION)).unwrap();
        assert!(refused(77).starts_with("the kernel says of its partition: "), "{}", refused(77));
        let (_root, partitions, _) = host(false);
        let old = partitions.enclose(&vm, 77, &[2].into(), []).unwrap_err().to_string();
        assert!(old.contains("from 6.7 on"), "{old}");
    }
}
