//! Time in which the kernel kept groups from running, because their CPU limits were used up.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::controller::{Controller, Listed};
use crate::kernel::shortage::unless_short;

/// Returns the folders of the groups whose limits apply to a process or thread: its own group and
/// those above it, without the root and without slices. A slice holds many programs, so its time
/// would not be that of one. `listed` is the file `cgroup` in the folder of the process or thread.
/// One that has ended is in no group. Fails only for want of descriptors or memory.
pub(crate) fn limiting(cpu: &Controller, listed: &Path) -> io::Result<BTreeSet<PathBuf>> {
    let listed = unless_short(Listed::read(listed))?;
    let Some(folder) = listed.and_then(|listed| cpu.home(&listed)) else { return Ok(BTreeSet::new()) };
    let root = cpu.mount();
    let is_own = |folder: &&Path| {
        let is_slice = folder.extension().is_some_and(|extension| extension == "slice");
        *folder != root && folder.starts_with(&root) && !is_slice
    };
    Ok(folder.ancestors().take_while(is_own).map(Path::to_owned).collect())
}

/// Returns the time that a group was kept from running since it exists, in nanoseconds, summed over
/// all pCPUs (`cpu.stat`).
pub(crate) fn throttled_ns(group: &Path) -> io::Result<u64> {
    let text = fs::read_to_string(group.join("cpu.stat"))?;
    let found = text.lines().find_map(|line| {
        let (name, value) = line.split_once(' ')?;
        let unit = match name {
            "throttled_time" => 1,
            "throttled_usec" => 1000,
            _ => return None,
        };
        value.trim().parse::<u64>().ok()?.checked_mul(unit)
    });
    found.ok_or_else(|| io::ErrorKind::InvalidData.into())
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
        assert_eq!(limiting(&controller, &listed).unwrap(), expected);
        fs::write(&listed, "1:cpu,cpuacct:/\n").unwrap();
        assert!(limiting(&controller, &listed).unwrap().is_empty());
        assert!(limiting(&controller, &root.path().join("ended")).unwrap().is_empty());
        assert!(throttled_ns(&inner).is_err());
        fs::write(inner.join("cpu.stat"), "nr_periods 7\nnr_throttled 3\nthrottled_time 1234\n").unwrap();
        assert_eq!(throttled_ns(&inner).unwrap(), 1234);
        fs::write(inner.join("cpu.stat"), "usage_usec 7\nthrottled_usec 12\n").unwrap();
        assert_eq!(throttled_ns(&inner).unwrap(), 12_000);
    }
}
