//! Partitions of cgroup v2: an isolated one per VM takes its pCPUs from all other tasks.
//!
//! The VM's control group (see [`super::group_name`]) gets a threaded subgroup `vcpus`, while
//! QEMU's other threads stay in the group itself. The group is no partition and lists no pCPUs of
//! its own, so this needs a kernel with `cpuset.cpus.exclusive` that is independent of
//! `cpuset.cpus` (Linux 6.11). Idle SMT siblings are in the partition and run nothing.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use taut_api::Name;

use super::{admit_only, dissolve, group_name, put};
use crate::kernel::list;

/// Name of the subgroup of a VM's vCPUs.
const VCPUS: &str = "vcpus";
/// File of the pCPUs that a group keeps from its siblings.
const EXCLUSIVE: &str = "cpuset.cpus.exclusive";
/// File of a group's kind: `member`, `root`, `isolated`, or `isolated invalid (why)`.
const PARTITION: &str = "cpuset.cpus.partition";
/// File of a threaded group's threads.
const THREADS: &str = "cgroup.threads";

/// The partitions below one scope.
#[derive(Debug, Clone)]
pub(crate) struct Partitions {
    scope: PathBuf,
}

impl Partitions {
    /// Finds the partitions below `scope`, or below the root group. Returns `None` if cgroup v2 has
    /// no cpusets.
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

    /// Returns the pCPUs that no partition has taken.
    pub(crate) fn common(&self) -> Option<BTreeSet<u32>> {
        let text = fs::read_to_string(self.scope.join("cpuset.cpus.effective")).ok()?;
        let cpus: BTreeSet<u32> = list::parse(&text).ok()?.into_iter().collect();
        (!cpus.is_empty()).then_some(cpus)
    }

    /// Moves a VM's vCPU threads into a partition with these pCPUs.
    pub(crate) fn enclose(
        &self,
        vm: &Name,
        pid: u32,
        cpus: &BTreeSet<u32>,
        tids: impl IntoIterator<Item = u32>,
    ) -> io::Result<()> {
        let group = self.scope.join(group_name(vm, pid));
        let vcpus = group.join(VCPUS);
        let list = list::format(cpus);
        if !group.exists() {
            return Err(io::Error::other("it has no control group"));
        }
        if !vcpus.exists() {
            fs::create_dir(&vcpus)?;
        }
        // The order matters: a group with processes accepts only threaded controllers, and those
        // only once it has a threaded subgroup.
        put(&vcpus.join("cgroup.type"), "threaded")?;
        if !divides_cpusets(&group) {
            fs::write(group.join("cgroup.subtree_control"), "+cpuset")?;
        }
        if !knows_exclusive(&group) {
            return Err(io::Error::other(
                "an isolated partition below a VM's control group needs cpuset.cpus.exclusive as Linux has it \
                 from 6.11 on",
            ));
        }
        put(&group.join(EXCLUSIVE), &list)?;
        put(&vcpus.join("cpuset.cpus"), &list)?;
        put(&vcpus.join(EXCLUSIVE), &list)?;
        put(&vcpus.join(PARTITION), "isolated")?;
        let state = fs::read_to_string(vcpus.join(PARTITION))?;
        if state.trim_end() != "isolated" {
            return Err(io::Error::other(format!(
                "the kernel says of its partition: {} (before Linux 6.11, partitions below a VM's control \
                 group are not valid)",
                state.trim_end()
            )));
        }
        admit_only(&vcpus, THREADS, tids, &group)
    }

    /// Removes the partitions of all processes that a VM had; the threads join the group above.
    /// Goes on where an earlier call was interrupted.
    pub(crate) fn release(&self, vm: &Name) -> io::Result<()> {
        for group in self.groups(vm) {
            let vcpus = group.join(VCPUS);
            if vcpus.exists() {
                // Gives the pCPUs back first: no thread can move into a group that has none.
                let _ = fs::write(vcpus.join(PARTITION), "member");
                dissolve(&vcpus, THREADS, &[&group])?;
            }
            let _ = clear(&group.join(EXCLUSIVE));
            if divides_cpusets(&group) {
                fs::write(group.join("cgroup.subtree_control"), "-cpuset")?;
            }
        }
        Ok(())
    }

    /// Returns the groups of all processes that the VM had.
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

/// Returns whether subgroups of a group have cpusets of their own.
fn divides_cpusets(group: &Path) -> bool {
    let on = fs::read_to_string(group.join("cgroup.subtree_control")).unwrap_or_default();
    on.split_whitespace().any(|name| name.trim_start_matches('+') == "cpuset")
}

/// Empties a list of pCPUs, unless it is empty.
fn clear(path: &Path) -> io::Result<()> {
    let is_empty = fs::read_to_string(path).unwrap_or_default().trim().is_empty();
    if is_empty { Ok(()) } else { fs::write(path, "\n") }
}

/// Returns whether a group that is no partition can keep pCPUs from others.
#[cfg(not(test))]
fn knows_exclusive(group: &Path) -> bool {
    group.join(EXCLUSIVE).exists()
}

/// Stands in for the kernel in tests: the parent folder has a marker file.
#[cfg(test)]
fn knows_exclusive(group: &Path) -> bool {
    group.parent().is_some_and(|above| above.join("linux-6.11").exists())
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
            fs::write(mount.join("linux-6.11"), "").unwrap();
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
        // A VM whose name is a prefix of this one's has other groups.
        partitions.release(&"db".parse().unwrap()).unwrap();
        assert!(group.join("vcpus").exists());
        partitions.release(&vm).unwrap();
        assert!(!group.join("vcpus").exists());
        assert_eq!((read("cgroup.threads"), read("cpuset.cpus.exclusive")), ("80".into(), "\n".into()));
        assert_eq!(read("cgroup.subtree_control"), "-cpuset");
    }

    #[test]
    fn a_release_that_was_interrupted_is_completed() {
        let (_root, partitions, group) = host(true);
        fs::write(group.join(EXCLUSIVE), "2-3\n").unwrap();
        fs::write(group.join("cgroup.subtree_control"), "cpuset\n").unwrap();
        partitions.release(&"db.1".parse().unwrap()).unwrap();
        let read = |file: &str| fs::read_to_string(group.join(file)).unwrap();
        assert_eq!([read(EXCLUSIVE), read("cgroup.subtree_control")], ["\n", "-cpuset"]);
    }

    #[test]
    fn a_refused_partition_is_an_error_with_the_kernels_reason() {
        let (_root, partitions, group) = host(true);
        let vm: Name = "db.1".parse().unwrap();
        let refused = |pid| partitions.enclose(&vm, pid, &[2].into(), []).unwrap_err().to_string();
        assert!(refused(1).contains("no control group"));
        fs::create_dir(group.join("vcpus")).unwrap();
        // The kernel refuses by showing another content than was written.
        std::os::unix::fs::symlink("/dev/null", group.join("vcpus").join(PARTITION)).unwrap();
        assert!(refused(77).starts_with("the kernel says of its partition: "), "{}", refused(77));
        let (_root, partitions, _) = host(false);
        let old = partitions.enclose(&vm, 77, &[2].into(), []).unwrap_err().to_string();
        assert!(old.contains("from 6.11 on"), "{old}");
    }
}
