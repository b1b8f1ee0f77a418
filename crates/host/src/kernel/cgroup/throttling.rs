//! Time in which the kernel kept groups from running, because their CPU limits were used up.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::controller::{Controller, Listed};

/// Returns the folders of the groups whose limits apply to a process or thread: its own group and
/// those above it, without the root and without slices. A slice holds many programs, so its time
/// would not be that of one. `listed` is the file `cgroup` in the folder of the process or thread.
pub(crate) fn limiting(cpu: &Controller, listed: &Path) -> BTreeSet<PathBuf> {
    let Some(folder) = cpu.home(&Listed::read(listed)) else { return BTreeSet::new() };
    let root = cpu.mount();
    let is_own = |folder: &&Path| {
        let is_slice = folder.extension().is_some_and(|extension| extension == "slice");
        *folder != root && folder.starts_with(&root) && !is_slice
    };
    folder.ancestors().take_while(is_own).map(Path::to_owned).collect()
}

/// Returns the time that a group was kept from running since it exists, in nanoseconds, summed over
/// all pCPUs (`cpu.stat`).
pub(crate) fn throttled_ns(group: &Path) -> Option<u64> {
    let text = fs::read_to_string(group.join("cpu.stat")).ok()?;
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(' ')?;
        let unit = match name {
            "throttled_time" => 1,
            "throttled_usec" => 1000,
            _ => return None,
        };
        value.trim().parse::<u64>().ok()?.checked_mul(unit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_groups_of_a_thread_are_those_below_slices() {
        let root = tempfile::tempdir().unwrap();
        let cpu = root.path().join("sys/fs/cgroup/cpu");
        let inner = cpu.join("machine.slice/vm.scope/libvirt/vcpu0");
        fs::create_dir_all(&inner).unwrap();
        fs::write(cpu.join("cpu.shares"), "1024").unwrap();
        let listed = root.path().join("cgroup");
        fs::write(&listed, "4:memory:/\n1:cpu,cpuacct:/machine.slice/vm.scope/libvirt/vcpu0\n0::/\n")
            .unwrap();
        let controller = Controller::find(root.path(), None, "cpu").unwrap();
        let scope = cpu.join("machine.slice/vm.scope");
        let expected = BTreeSet::from([inner.clone(), scope.join("libvirt"), scope]);
        assert_eq!(limiting(&controller, &listed), expected);
        fs::write(&listed, "1:cpu,cpuacct:/\n").unwrap();
        assert!(limiting(&controller, &listed).is_empty());
        assert_eq!(throttled_ns(&inner), None);
        fs::write(inner.join("cpu.stat"), "nr_periods 7\nnr_throttled 3\nthrottled_time 1234\n").unwrap();
        assert_eq!(throttled_ns(&inner), Some(1234));
        fs::write(inner.join("cpu.stat"), "usage_usec 7\nthrottled_usec 12\n").unwrap();
        assert_eq!(throttled_ns(&inner), Some(12_000));
    }
}
