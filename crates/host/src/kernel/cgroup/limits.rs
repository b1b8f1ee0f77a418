//! Limits of a VM's process: the files that hold them, and how often the process has reached them.

use std::fs;
use std::io;
use std::path::Path;

use taut_api::enforcement::{Hierarchy, LimitHit, LimitHits, LimitKind, ProcessLimits};

use super::controller::{Controller, pages};
use super::put;

/// Limit of memory in cgroup v1.
const MEMORY_V1: &str = "memory.limit_in_bytes";
/// Limit of memory and swap together in cgroup v1, if the kernel accounts for swap.
pub(crate) const SWAP_V1: &str = "memory.memsw.limit_in_bytes";
/// Peak and limit of memory (cgroup v1).
const MOST_V1: (&str, &str) = ("memory.max_usage_in_bytes", MEMORY_V1);
/// Peak and limit of memory plus swap (cgroup v1).
const MOST_SWAP_V1: (&str, &str) = ("memory.memsw.max_usage_in_bytes", SWAP_V1);
/// Most bytes that the kernel charges to a group at a time.
const CHARGE: u64 = 64 * 4096;
/// Limit of memory in cgroup v2.
const MEMORY: &str = "memory.max";
/// Limit of swap in cgroup v2, if the kernel accounts for swap.
pub(crate) const SWAP: &str = "memory.swap.max";
/// With 1, the kernel ends all processes of a group together (cgroup v2).
const TOGETHER: &str = "memory.oom.group";
/// Number of processes that the kernel has ended, in both versions.
const KILLED: &str = "oom_kill";
/// Limit of processes and threads in both versions.
const PROCESSES: &str = "pids.max";

/// A limit that is not in force, and why.
pub(crate) type Unlimited = (LimitKind, String);

/// Sets the limits that a controller keeps in a group. `no_swap` forbids swap. Returns those that
/// could not be set.
pub(crate) fn set(
    root: &Path,
    controller: &Controller,
    dir: &Path,
    limits: &ProcessLimits,
    no_swap: bool,
) -> Vec<Unlimited> {
    let memory = || {
        let is_charged = limits.huge.0 > 0 && charges_huge_pages(root);
        pages(limits.memory.0 + if is_charged { limits.huge.0 } else { 0 })
    };
    match (controller.name, controller.version()) {
        ("memory", Hierarchy::V1) => {
            let memory = memory();
            // The kernel refuses a limit of memory above that of both, and one of both below that
            // of memory. So a limit that grows succeeds in the second attempt.
            let _ = put(&dir.join(MEMORY_V1), &memory);
            let swap = limit_swap(root, &dir.join(SWAP_V1), &memory);
            let memory = failed(LimitKind::Memory, dir, MEMORY_V1, put(&dir.join(MEMORY_V1), &memory));
            memory.into_iter().chain(swap).collect()
        }
        ("memory", Hierarchy::V2) => {
            let memory = memory();
            let swap = limit_swap(root, &dir.join(SWAP), if no_swap { "0" } else { &memory });
            let memory = put(&dir.join(MEMORY), &memory).and_then(|()| put(&dir.join(TOGETHER), "1"));
            failed(LimitKind::Memory, dir, MEMORY, memory).into_iter().chain(swap).collect()
        }
        ("pids", _) => {
            let set = put(&dir.join(PROCESSES), &limits.processes.to_string());
            failed(LimitKind::Processes, dir, PROCESSES, set).into_iter().collect()
        }
        _ => Vec::new(),
    }
}

/// Allows a group any amount of swap or none, if no limits are known for it (cgroup v2).
pub(crate) fn allow_swap(dir: &Path, no_swap: bool) -> io::Result<()> {
    put(&dir.join(SWAP), if no_swap { "0" } else { "max" })
}

/// Returns why limits without a controller are not in force. `memory` and `processes` tell which
/// controllers were found, in `scope` if that is a group of cgroup v2.
pub(crate) fn without_controller(memory: bool, processes: bool, scope: Option<&Path>) -> Vec<Unlimited> {
    let place = scope.map_or_else(|| "this host".to_owned(), |scope| scope.display().to_string());
    let hint = |of_host| match scope {
        Some(_) => "enable it in cgroup.subtree_control of the group above",
        None => of_host,
    };
    let mut unlimited = Vec::new();
    if !memory {
        let hint = hint("boot with cgroup_enable=memory");
        unlimited.push((LimitKind::Memory, format!("{place} has no memory controller; hint: {hint}")));
    }
    if !processes {
        let hint = hint("mount the controller of cgroup v1 or v2, the kernel needs CONFIG_CGROUP_PIDS");
        let why = "the limit of its user holds, without an event";
        unlimited
            .push((LimitKind::Processes, format!("{place} has no pids controller: {why}; hint: {hint}")));
    }
    unlimited
}

fn limit_swap(root: &Path, file: &Path, value: &str) -> Option<Unlimited> {
    if file.exists() {
        let why = format!("{} cannot be set", file.display());
        return put(file, value).err().map(|error| (LimitKind::Swap, format!("{why}: {error}")));
    }
    // Without swap there is nothing to limit.
    let has_swap = fs::read_to_string(root.join("proc/swaps")).is_ok_and(|text| text.lines().count() > 1);
    let why = format!("{} is absent; hint: boot with swapaccount=1", file.display());
    has_swap.then_some((LimitKind::Swap, why))
}

fn failed(kind: LimitKind, dir: &Path, file: &str, set: io::Result<()>) -> Option<Unlimited> {
    let error = set.err()?;
    Some((kind, format!("{} cannot be set: {error}", dir.join(file).display())))
}

/// Returns whether the kernel charges huge pages to control groups (a mount option of cgroup v2,
/// Linux 6.7).
fn charges_huge_pages(root: &Path) -> bool {
    let mounts = fs::read_to_string(root.join("proc/self/mounts")).unwrap_or_default();
    mounts.lines().any(|line| line.contains(" cgroup2 ") && line.contains("memory_hugetlb_accounting"))
}

/// Reads from a group's folder which limits its processes have reached. `version` is that of the
/// hierarchy. With cgroup v1, the group is that of the controller `name`.
pub(crate) fn hits(version: Hierarchy, name: &str, dir: &Path) -> LimitHits {
    let is_for = |controller: &str| version != Hierarchy::V1 || controller == name;
    let memory = || match version {
        Hierarchy::V1 => killed_v1(dir),
        Hierarchy::V2 | Hierarchy::None => killed_v2(dir),
    };
    let hit = |count: u64, limit: &[&str]| LimitHit {
        count,
        limit: limit.iter().find_map(|file| number(dir, file)).unwrap_or(0),
    };
    let memory = is_for("memory").then(memory).flatten();
    let processes = is_for("pids").then(|| field(dir, "pids.events", "max")).flatten();
    LimitHits {
        memory: memory.filter(|count| *count > 0).map(|count| hit(count, &[MEMORY, MEMORY_V1])),
        processes: processes.filter(|count| *count > 0).map(|count| hit(count, &[PROCESSES])),
        descriptors: None,
    }
}

/// Returns the number of processes that the kernel has ended because the group had reached its
/// limit of memory (cgroup v2). The kernel also ends processes while the host has no memory left.
/// Then the group has not reached its own limit.
fn killed_v2(dir: &Path) -> Option<u64> {
    field(dir, "memory.events", "oom").filter(|reached| *reached > 0)?;
    field(dir, "memory.events", KILLED)
}

/// Returns the same with cgroup v1.
fn killed_v1(dir: &Path) -> Option<u64> {
    // Mostly the kernel has ended none, and the other files tell nothing more.
    let killed = field(dir, "memory.oom_control", KILLED).filter(|killed| *killed > 0)?;
    // The limit of memory and swap together has the same value, and is reached first. Recent
    // kernels do not count its failures.
    let failed = number(dir, "memory.failcnt")? > 0;
    let is_full = |(most, limit)| Some(number(dir, most)?.saturating_add(CHARGE) >= number(dir, limit)?);
    let reached = failed || is_full(MOST_SWAP_V1).or_else(|| is_full(MOST_V1)).unwrap_or(false);
    reached.then_some(killed)
}

/// Reads the number that a group's file has.
fn number(dir: &Path, file: &str) -> Option<u64> {
    fs::read_to_string(dir.join(file)).ok()?.trim().parse().ok()
}

/// Reads the number after a name in a group's file.
fn field(dir: &Path, file: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(dir.join(file)).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dir(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (file, content) in files {
            fs::write(dir.path().join(file), content).unwrap();
        }
        dir
    }

    #[test]
    fn with_cgroup_v2_a_group_tells_what_it_has_reached() {
        let memory = "low 0\nhigh 0\nmax 9\noom 1\noom_kill 2\noom_group_kill 1\n";
        let dir = dir(&[
            ("memory.events", memory),
            ("memory.max", "4096\n"),
            ("pids.events", "max 3\n"),
            ("pids.max", "80\n"),
        ]);
        let hits = hits(Hierarchy::V2, "memory", dir.path());
        assert_eq!(hits.memory, Some(LimitHit { count: 2, limit: 4096 }));
        assert_eq!(hits.processes, Some(LimitHit { count: 3, limit: 80 }));
    }

    #[test]
    fn a_process_that_the_host_ended_for_lack_of_memory_has_not_reached_its_limit() {
        let v2 = dir(&[("memory.events", "max 0\noom 0\noom_kill 1\n"), ("pids.events", "max 0\n")]);
        assert_eq!(hits(Hierarchy::V2, "pids", v2.path()), LimitHits::default());
        let control = "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n";
        let files = [("memory.oom_control", control), ("memory.limit_in_bytes", "4096\n")];
        let v1 = dir(&[&files[..], &[("memory.failcnt", "0\n")]].concat());
        assert_eq!(hits(Hierarchy::V1, "memory", v1.path()), LimitHits::default());
        let most = ("memory.memsw.max_usage_in_bytes", "1048576\n");
        let none = ("memory.failcnt", "0\n");
        let roomy = dir(&[&files[..], &[none, most, ("memory.memsw.limit_in_bytes", "2097152\n")]].concat());
        assert_eq!(hits(Hierarchy::V1, "memory", roomy.path()), LimitHits::default());
        let full = [none, most, ("memory.memsw.limit_in_bytes", "1048576\n")];
        for reached in [&[("memory.failcnt", "7\n")][..], &full] {
            let v1 = dir(&[&files[..], reached].concat());
            assert_eq!(
                hits(Hierarchy::V1, "memory", v1.path()).memory,
                Some(LimitHit { count: 1, limit: 4096 })
            );
        }
    }
}
