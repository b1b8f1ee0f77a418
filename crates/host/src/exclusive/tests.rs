//! On a fake tree: which files are changed how, and that all of it is taken back, also after a crash at any point.

use std::fs;

use super::*;

/// A host of four pCPUs with one container's cpuset and an interrupt on pCPU 2 alone.
const FILES: &[(&str, &str)] = &[
    ("sys/devices/system/cpu/online", "0-3\n"),
    ("sys/devices/system/cpu/cpu1/power/pm_qos_resume_latency_us", "0\n"),
    ("sys/devices/system/cpu/cpu2/power/pm_qos_resume_latency_us", "100\n"),
    ("sys/devices/virtual/workqueue/cpumask", "f\n"),
    ("proc/irq/default_smp_affinity", "f\n"),
    ("proc/irq/24/smp_affinity_list", "0-3\n"),
    ("proc/irq/25/smp_affinity_list", "2\n"),
    ("sys/fs/cgroup/cpuset/cpuset.cpus", "0-3\n"),
    ("sys/fs/cgroup/cpuset/cpuset.mems", "0\n"),
    ("sys/fs/cgroup/cpuset/box/cpuset.cpus", "0-2\n"),
    ("sys/fs/cgroup/cpuset/box/inner/cpuset.cpus", "1-2\n"),
    ("sys/fs/cgroup/cpuset/other/cpuset.cpus", "2\n"),
];

fn tree() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, content) in FILES {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    root
}

fn read(root: &Path, path: &str) -> String {
    fs::read_to_string(root.join(path)).unwrap_or_default()
}

fn unchanged(root: &Path) {
    for (path, content) in FILES {
        assert_eq!(read(root, path), *content, "{path}");
    }
}

fn wanted() -> Wanted {
    // No process has this number: threads are another matter.
    let owner = Owner { pid: u32::MAX, cpus: vec![2], idle: vec![3] };
    Wanted { owners: [("db1".parse().unwrap(), owner)].into(), ..Wanted::default() }
}

fn ledger(root: &Path) -> Ledger {
    Ledger::new(root, &root.join("var/lib/taut"))
}

fn exclusive(root: &Path) -> Exclusive {
    Exclusive::new(root, None, ledger(root)).unwrap()
}

#[test]
fn everything_leaves_the_exclusive_pcpus_and_comes_back() {
    let root = tree();
    let at = |path: &str| read(root.path(), path);
    let mut levers = exclusive(root.path());
    let outcome = levers.settle(&wanted()).unwrap();
    assert_eq!(outcome.problems, Vec::<String>::new());
    assert!(outcome.in_force.is_empty(), "its vCPU has not been found");
    let claimed = ledger(root.path()).claimed(Holder::Daemon).unwrap();
    assert_eq!(claimed.len(), 7, "what may stay is not in it: {claimed:?}");
    assert_eq!(at("sys/devices/system/cpu/cpu1/power/pm_qos_resume_latency_us"), "0\n");
    for (path, content) in [
        ("sys/devices/system/cpu/cpu2/power/pm_qos_resume_latency_us", "n/a"),
        ("sys/devices/virtual/workqueue/cpumask", "3"),
        ("proc/irq/default_smp_affinity", "3"),
        ("proc/irq/24/smp_affinity_list", "0-1"),
        ("proc/irq/25/smp_affinity_list", "0-1"),
        ("sys/fs/cgroup/cpuset/box/cpuset.cpus", "0-1"),
        ("sys/fs/cgroup/cpuset/box/inner/cpuset.cpus", "1"),
        ("sys/fs/cgroup/cpuset/other/cpuset.cpus", "2\n"),
        ("sys/fs/cgroup/cpuset/taut.host/cpuset.cpus", "0-1"),
        ("sys/fs/cgroup/cpuset/taut.vm.db1/cpuset.cpus", "2"),
    ] {
        assert_eq!(at(path), content, "{path}");
    }
    let book = at("var/lib/taut/host-changes.json");
    levers.settle(&wanted()).unwrap();
    assert_eq!(at("var/lib/taut/host-changes.json"), book, "settled");
    levers.settle(&Wanted::default()).unwrap();
    unchanged(root.path());
    assert!(levers.is_empty() && exclusive(root.path()).is_empty());
}

#[test]
fn the_next_process_takes_back_what_a_killed_one_did() {
    let root = tree();
    exclusive(root.path()).settle(&wanted()).unwrap();
    // As if it had died after some of the files.
    for (path, content) in FILES.iter().skip(4) {
        fs::write(root.path().join(path), content).unwrap();
    }
    let mut next = exclusive(root.path());
    assert_eq!(next.vms().len(), 1);
    next.settle(&Wanted::default()).unwrap();
    unchanged(root.path());
    assert!(next.is_empty());
}

#[test]
fn without_a_ledger_nothing_is_changed() {
    let root = tree();
    let mut levers = exclusive(root.path());
    fs::create_dir_all(root.path().join("var/lib/taut")).unwrap();
    fs::write(root.path().join("var/lib/taut/host-changes.json"), "not a ledger").unwrap();
    assert!(matches!(levers.settle(&wanted()), Err(LedgerError::Strange { .. })));
    unchanged(root.path());
}

#[test]
fn a_host_without_cpusets_says_so() {
    let root = tree();
    fs::remove_dir_all(root.path().join("sys/fs/cgroup")).unwrap();
    let outcome = exclusive(root.path()).settle(&wanted()).unwrap();
    assert!(outcome.problems[0].contains("cgroup v2"), "{:?}", outcome.problems);
    assert_eq!(read(root.path(), "proc/irq/24/smp_affinity_list"), "0-1");
}

#[test]
fn with_cgroup_v2_the_vcpus_get_a_partition_and_everything_comes_back() {
    let root = tree();
    let mount = root.path().join("sys/fs/cgroup");
    fs::remove_dir_all(&mount).unwrap();
    let group = mount.join(format!("taut.vm.db1.{}", u32::MAX));
    fs::create_dir_all(&group).unwrap();
    fs::write(mount.join("cgroup.controllers"), "cpuset cpu\n").unwrap();
    fs::write(mount.join("linux-6.7"), "").unwrap();
    let outcome = exclusive(root.path()).settle(&wanted()).unwrap();
    assert_eq!(outcome.problems, Vec::<String>::new());
    let exclusive_cpus = fs::read_to_string(group.join("vcpus/cpuset.cpus.exclusive")).unwrap();
    assert_eq!(exclusive_cpus, "2-3", "its idle sibling as well");
    assert_eq!(read(root.path(), "proc/irq/24/smp_affinity_list"), "0-1");
    // The next daemon takes it back.
    let mut next = exclusive(root.path());
    next.settle(&Wanted::default()).unwrap();
    assert!(!group.join("vcpus").exists() && next.is_empty());
    assert_eq!(read(root.path(), "proc/irq/24/smp_affinity_list"), "0-3\n");
}

#[test]
fn kvm_polls_as_long_as_somebody_asks_for_it() {
    let root = tree();
    let path = "sys/module/kvm/parameters/halt_poll_ns";
    fs::create_dir_all(root.path().join(path).parent().unwrap()).unwrap();
    fs::write(root.path().join(path), "200000\n").unwrap();
    let mut levers = exclusive(root.path());
    for (asked, polled) in [(Some(50_000), "200000\n"), (Some(400_000), "400000"), (None, "200000\n")] {
        assert_eq!(
            levers.settle(&Wanted { poll_ns: asked, ..Wanted::default() }).unwrap(),
            Outcome::default()
        );
        assert_eq!(read(root.path(), path), polled);
    }
    assert!(levers.is_empty());
    unchanged(root.path());
}

#[test]
fn interrupts_of_a_vms_device_have_a_place_of_their_own() {
    let root = tree();
    let mut levers = exclusive(root.path());
    levers.place_interrupts([(24, [1].into()), (99, [0].into())].into());
    levers.settle(&wanted()).unwrap();
    assert_eq!(read(root.path(), "proc/irq/24/smp_affinity_list"), "1");
    assert_eq!(read(root.path(), "proc/irq/25/smp_affinity_list"), "0-1", "by the rule");
    levers.place_interrupts(BTreeMap::new());
    levers.settle(&wanted()).unwrap();
    assert_eq!(read(root.path(), "proc/irq/24/smp_affinity_list"), "0-1");
    levers.settle(&Wanted::default()).unwrap();
    unchanged(root.path());
}

#[test]
fn a_cpuset_that_could_not_be_removed_is_tried_again_also_by_the_next() {
    let root = tree();
    let mut levers = exclusive(root.path());
    levers.settle(&wanted()).unwrap();
    // It keeps the folder, as a task that is ending does for a while.
    let held = root.path().join("sys/fs/cgroup/cpuset/taut.host/held");
    fs::create_dir(&held).unwrap();
    let outcome = levers.settle(&Wanted::default()).unwrap();
    assert!(outcome.problems.iter().any(|problem| problem.contains("cannot be removed yet")), "{outcome:?}");
    let mut next = exclusive(root.path());
    assert!(!levers.is_empty() && !next.is_empty());
    fs::remove_dir(held).unwrap();
    for levers in [&mut levers, &mut next] {
        assert!(levers.settle(&Wanted::default()).unwrap().problems.is_empty());
        assert!(levers.is_empty());
    }
    unchanged(root.path());
}

#[test]
fn what_another_daemon_has_made_is_left_alone() {
    let root = tree();
    let theirs = root.path().join("sys/fs/cgroup/cpuset/taut.host");
    fs::create_dir_all(&theirs).unwrap();
    let mut levers = exclusive(root.path());
    assert!(levers.is_empty());
    levers.settle(&Wanted::default()).unwrap();
    assert!(theirs.exists());
}
