//! Control groups: the operations that both cgroup versions share.
//!
//! The files in a group's folder belong to the kernel and disappear with the folder.

pub(crate) mod controller;
pub(crate) mod cpuset;
pub(crate) mod disk;
pub(crate) mod limits;
pub(crate) mod partition;
pub(crate) mod throttling;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;
use std::thread;
use std::time::Duration;

use taut_api::Name;

/// Attempts to empty a group: its processes may start others while they are moved.
const SWEEPS: usize = 20;

/// Returns the name of a VM's group. It holds the process number, so that two daemons, or two
/// processes of one VM in turn, never share a group.
pub(crate) fn group_name(vm: &Name, pid: u32) -> String {
    format!("taut.vm.{vm}.{pid}")
}

/// Returns the VM and the process number of a group's folder.
pub(crate) fn named_in(dir: &Path) -> Option<(Name, u32)> {
    let (vm, pid) = dir.file_name()?.to_str()?.strip_prefix("taut.vm.")?.rsplit_once('.')?;
    Some((vm.parse().ok()?, pid.parse().ok()?))
}

/// Writes a value unless the file has it already.
pub(crate) fn put(path: &Path, value: &str) -> io::Result<()> {
    let before = fs::read_to_string(path).unwrap_or_default();
    if before.trim_end() == value { Ok(()) } else { fs::write(path, value) }
}

/// Reads the members of a group from one of its files: processes from `cgroup.procs`, threads from
/// `tasks` or `cgroup.threads`.
pub(crate) fn members(dir: &Path, file: &str) -> BTreeSet<u32> {
    let text = fs::read_to_string(dir.join(file)).unwrap_or_default();
    text.lines().filter_map(|line| line.trim().parse().ok()).collect()
}

/// Makes `numbers` the only members of a group. Others move to `home` as far as the kernel permits:
/// a thread that a vCPU starts is in the vCPU's group.
///
/// # Errors
/// Returns the kernel's error if it refuses one of `numbers`.
pub(crate) fn admit_only(
    dir: &Path,
    file: &str,
    numbers: impl IntoIterator<Item = u32>,
    home: &Path,
) -> io::Result<()> {
    let inside = members(dir, file);
    let wanted: BTreeSet<u32> = numbers.into_iter().collect();
    for number in wanted.difference(&inside) {
        fs::write(dir.join(file), number.to_string())?;
    }
    for number in inside.difference(&wanted) {
        // A thread that has ended meanwhile, or that the kernel keeps on its pCPU, is not moved.
        let _ = fs::write(home.join(file), number.to_string());
    }
    Ok(())
}

/// Moves every member that can be moved, each into the first of `homes` that accepts it.
pub(crate) fn move_all(from: &Path, file: &str, homes: &[&Path]) {
    let mut stuck = BTreeSet::new();
    for _ in 0..SWEEPS {
        let there: Vec<u32> = members(from, file).difference(&stuck).copied().collect();
        if there.is_empty() {
            return;
        }
        for number in there {
            let taken = |home: &&Path| fs::write(home.join(file), number.to_string()).is_ok();
            if !homes.iter().any(taken) {
                stuck.insert(number);
            }
        }
    }
}

/// Moves all members out and removes the group. A group that does not exist is no error.
///
/// # Errors
/// Returns the kernel's error if a member stays; the caller tries again later.
pub(crate) fn dissolve(dir: &Path, file: &str, homes: &[&Path]) -> io::Result<()> {
    for _ in 0..SWEEPS {
        if !dir.exists() {
            return Ok(());
        }
        move_all(dir, file, homes);
        if remove(dir).is_ok() {
            return Ok(());
        }
        // An exiting task has left the list and still blocks the removal for a moment.
        thread::sleep(Duration::from_millis(1));
    }
    if dir.exists() { remove(dir) } else { Ok(()) }
}

/// Removes an empty group.
#[cfg(not(test))]
fn remove(dir: &Path) -> io::Result<()> {
    fs::remove_dir(dir)
}

/// Removes an ordinary folder that stands in for a group: its files first, unless it has a
/// subgroup.
#[cfg(test)]
fn remove(dir: &Path) -> io::Result<()> {
    let inner = fs::read_dir(dir)?.flatten().any(|entry| entry.path().is_dir());
    if inner { fs::remove_dir(dir) } else { fs::remove_dir_all(dir) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_named_after_its_vm_and_process() {
        let vm: Name = "db1.example".parse().unwrap();
        let folder = Path::new("/sys/fs/cgroup").join(group_name(&vm, 77));
        assert_eq!(named_in(&folder), Some((vm, 77)));
        assert_eq!(named_in(Path::new("/sys/fs/cgroup/system.slice")), None);
    }

    #[test]
    fn members_move_to_the_first_home_that_accepts_them() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        for group in ["vm", "home"] {
            fs::create_dir(at(group)).unwrap();
        }
        fs::write(at("vm/tasks"), "77\n").unwrap();
        // The first home does not exist.
        dissolve(&at("vm"), "tasks", &[&at("gone"), &at("home")]).unwrap();
        assert_eq!((members(&at("home"), "tasks"), at("vm").exists()), ([77].into(), false));
        dissolve(&at("vm"), "tasks", &[]).unwrap();
    }

    #[test]
    fn a_thread_that_a_vcpu_has_started_does_not_stay_in_its_group() {
        let root = tempfile::tempdir().unwrap();
        let vm = root.path().join("vm");
        fs::create_dir(&vm).unwrap();
        fs::write(vm.join("tasks"), "77\n78\n").unwrap();
        admit_only(&vm, "tasks", [77], root.path()).unwrap();
        assert_eq!(members(root.path(), "tasks"), [78].into());
        assert!(admit_only(&root.path().join("gone"), "tasks", [77], root.path()).is_err());
    }

    #[test]
    fn a_busy_group_is_removed_once_it_is_free() {
        let root = tempfile::tempdir().unwrap();
        let (dir, inner) = (root.path().join("vm"), root.path().join("vm/inner"));
        fs::create_dir_all(&inner).unwrap();
        assert!(dissolve(&dir, "tasks", &[root.path()]).is_err() && dir.exists());
        let held = inner.clone();
        let goes = thread::spawn(move || fs::remove_dir(held));
        // Stands in for a task that exits meanwhile.
        while dissolve(&dir, "tasks", &[root.path()]).is_err() {}
        goes.join().unwrap().unwrap();
        assert!(!dir.exists());
    }
}
