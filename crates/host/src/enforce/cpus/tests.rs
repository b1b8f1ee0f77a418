//! Changed files on a fake tree, and putting them back, also after a kill at any point.

use std::fs;

use taut_api::enforcement::VmShare;

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

/// A plan for a VM that owns pCPU 2. No process has its number, so no thread is bound.
fn wanted() -> HostPlan {
    let cpus = CpuShare::Exclusive { cpus: vec![2], idle: vec![3] };
    let vm = VmShare { pid: u32::MAX, cpus, ..VmShare::default() };
    HostPlan { vms: [("db1".parse().unwrap(), vm)].into(), ..HostPlan::default() }
}

/// Settles without interrupts of devices.
fn settle(cpus: &mut Cpus, plan: &HostPlan) -> HostReport {
    let mut report = HostReport::default();
    cpus.settle(plan, &BTreeMap::new(), &mut report).unwrap();
    report
}

fn ledger(root: &Path) -> Ledger {
    Ledger::new(root, &root.join("var/lib/taut"))
}

fn cpus(root: &Path) -> Cpus {
    Cpus::new(root, None, ledger(root)).unwrap()
}

#[test]
fn everything_leaves_the_exclusive_pcpus_and_comes_back() {
    let root = tree();
    let at = |path: &str| read(root.path(), path);
    let mut cpus_now = cpus(root.path());
    let report = settle(&mut cpus_now, &wanted());
    assert_eq!(report.cpu_problems, Vec::<String>::new());
    assert!(report.vms.values().all(|vm| !vm.exclusive), "its vCPU has not been found");
    let claimed = ledger(root.path()).claimed(Holder::Daemon).unwrap();
    assert_eq!(claimed.len(), 7, "files that need no change are not in it: {claimed:?}");
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
    settle(&mut cpus_now, &wanted());
    assert_eq!(at("var/lib/taut/host-changes.json"), book, "settled");
    settle(&mut cpus_now, &HostPlan::default());
    unchanged(root.path());
    assert!(cpus_now.is_idle() && cpus(root.path()).is_idle());
}

#[test]
fn the_next_process_takes_back_what_a_killed_one_did() {
    let root = tree();
    settle(&mut cpus(root.path()), &wanted());
    // The first process was killed after changing some of the files.
    for (path, content) in FILES.iter().skip(4) {
        fs::write(root.path().join(path), content).unwrap();
    }
    let mut next = cpus(root.path());
    assert_eq!(next.owned().len(), 1);
    settle(&mut next, &HostPlan::default());
    unchanged(root.path());
    assert!(next.is_idle());
}

#[test]
fn without_a_ledger_nothing_is_changed() {
    let root = tree();
    let mut cpus = cpus(root.path());
    fs::create_dir_all(root.path().join("var/lib/taut")).unwrap();
    fs::write(root.path().join("var/lib/taut/host-changes.json"), "not a ledger").unwrap();
    let settled = cpus.settle(&wanted(), &BTreeMap::new(), &mut HostReport::default());
    assert!(matches!(settled, Err(LedgerError::Strange { .. })));
    unchanged(root.path());
}

#[test]
fn a_host_without_cpusets_reports_that_other_tasks_stay() {
    let root = tree();
    fs::remove_dir_all(root.path().join("sys/fs/cgroup")).unwrap();
    let problems = settle(&mut cpus(root.path()), &wanted()).cpu_problems;
    assert!(problems[0].contains("cgroup v2"), "{problems:?}");
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
    fs::write(mount.join("linux-6.11"), "").unwrap();
    let report = settle(&mut cpus(root.path()), &wanted());
    assert_eq!(report.cpu_problems, Vec::<String>::new());
    let exclusive_cpus = fs::read_to_string(group.join("vcpus/cpuset.cpus.exclusive")).unwrap();
    assert_eq!(exclusive_cpus, "2-3", "its idle sibling as well");
    assert_eq!(read(root.path(), "proc/irq/24/smp_affinity_list"), "0-1");
    // The next daemon takes it back.
    let mut next = cpus(root.path());
    settle(&mut next, &HostPlan::default());
    assert!(!group.join("vcpus").exists() && next.is_idle());
    assert_eq!(read(root.path(), "proc/irq/24/smp_affinity_list"), "0-3\n");
}

#[test]
fn kvm_polls_longer_only_while_a_plan_asks_for_it() {
    let root = tree();
    let path = "sys/module/kvm/parameters/halt_poll_ns";
    fs::create_dir_all(root.path().join(path).parent().unwrap()).unwrap();
    fs::write(root.path().join(path), "200000\n").unwrap();
    let mut cpus = cpus(root.path());
    for (asked, polled) in [(Some(50_000), "200000\n"), (Some(400_000), "400000"), (None, "200000\n")] {
        let plan = HostPlan { poll_ns: asked, ..HostPlan::default() };
        assert_eq!(settle(&mut cpus, &plan), HostReport::default());
        assert_eq!(read(root.path(), path), polled);
    }
    assert!(cpus.is_idle());
    unchanged(root.path());
}

#[test]
fn interrupts_of_a_vms_device_go_to_their_own_pcpus() {
    let root = tree();
    let mut cpus = cpus(root.path());
    let interrupts = [(24, [1].into()), (99, [0].into())].into();
    cpus.settle(&wanted(), &interrupts, &mut HostReport::default()).unwrap();
    assert_eq!(read(root.path(), "proc/irq/24/smp_affinity_list"), "1");
    assert_eq!(read(root.path(), "proc/irq/25/smp_affinity_list"), "0-1", "by the general rule");
    settle(&mut cpus, &wanted());
    assert_eq!(read(root.path(), "proc/irq/24/smp_affinity_list"), "0-1");
    settle(&mut cpus, &HostPlan::default());
    unchanged(root.path());
}

#[test]
fn removing_a_busy_cpuset_is_tried_again_also_by_the_next_process() {
    let root = tree();
    let mut first = cpus(root.path());
    settle(&mut first, &wanted());
    // An inner folder keeps the cpuset busy, as an exiting task does for a while.
    let held = root.path().join("sys/fs/cgroup/cpuset/taut.host/held");
    fs::create_dir(&held).unwrap();
    let problems = settle(&mut first, &HostPlan::default()).cpu_problems;
    assert!(problems.iter().any(|problem| problem.contains("cannot be removed yet")), "{problems:?}");
    let mut next = cpus(root.path());
    assert!(!first.is_idle() && !next.is_idle());
    fs::remove_dir(held).unwrap();
    for process in [&mut first, &mut next] {
        assert!(settle(process, &HostPlan::default()).cpu_problems.is_empty());
        assert!(process.is_idle());
    }
    unchanged(root.path());
}

#[test]
fn a_cpuset_of_another_daemon_is_left_alone() {
    let root = tree();
    let theirs = root.path().join("sys/fs/cgroup/cpuset/taut.host");
    fs::create_dir_all(&theirs).unwrap();
    let mut cpus = cpus(root.path());
    assert!(cpus.is_idle());
    settle(&mut cpus, &HostPlan::default());
    assert!(theirs.exists());
}
