//! Limits that control groups can set for the processes of VMs.

use std::path::Path;

use taut_api::check::LimitFacts;
use taut_api::enforcement::Hierarchy;

use crate::kernel::cgroup::controller::Controller;
use crate::kernel::cgroup::limits::{SWAP, SWAP_V1};
use crate::kernel::tree::Tree;

pub(super) fn read(tree: Tree<'_>) -> Option<LimitFacts> {
    if tree.names("sys/fs/cgroup").is_empty() {
        return None;
    }
    let memory = Controller::find(tree.0, None, "memory");
    let swap = memory.as_ref().is_some_and(|controller| limits_swap(tree, controller));
    let processes = Controller::find(tree.0, None, "pids").is_some();
    Some(LimitFacts { memory: memory.is_some(), swap, processes })
}

/// Returns whether the kernel has a limit of swap. With cgroup v2 the root has no such file, but
/// each of its groups has one.
fn limits_swap(tree: Tree<'_>, memory: &Controller) -> bool {
    if memory.version() == Hierarchy::V1 {
        return memory.base.join(SWAP_V1).exists();
    }
    let folder = memory.base.strip_prefix(tree.0).unwrap_or(Path::new("")).to_string_lossy();
    let has = |name: &String, file: &str| memory.base.join(name).join(file).exists();
    let groups = tree.names(&folder);
    let mut limited = groups.iter().filter(|name| has(name, "memory.max")).peekable();
    limited.peek().is_none() || limited.any(|name| has(name, SWAP))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn read_tree(files: &[(&str, &str)]) -> Option<LimitFacts> {
        let root = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        read(Tree(root.path()))
    }

    #[test]
    fn limits_of_both_versions_are_found() {
        assert_eq!(read_tree(&[]), None);
        let (memory, swap) = (
            "sys/fs/cgroup/memory/memory.limit_in_bytes",
            "sys/fs/cgroup/memory/memory.memsw.limit_in_bytes",
        );
        let pids = "sys/fs/cgroup/pids/cgroup.procs";
        let all = LimitFacts { memory: true, swap: true, processes: true };
        assert_eq!(read_tree(&[(memory, ""), (swap, ""), (pids, "")]), Some(all));
        assert_eq!(read_tree(&[(memory, ""), (pids, "")]), Some(LimitFacts { swap: false, ..all }));
        let none = LimitFacts::default();
        assert_eq!(read_tree(&[("sys/fs/cgroup/cpu/cpu.shares", "")]), Some(none));
        let controllers = ("sys/fs/cgroup/cgroup.controllers", "memory pids");
        assert_eq!(read_tree(&[controllers]), Some(all), "no group tells otherwise");
        let group = ("sys/fs/cgroup/init/memory.max", "max");
        assert_eq!(read_tree(&[controllers, group]), Some(LimitFacts { swap: false, ..all }));
        let swap = ("sys/fs/cgroup/init/memory.swap.max", "max");
        assert_eq!(read_tree(&[controllers, group, swap]), Some(all));
    }
}
