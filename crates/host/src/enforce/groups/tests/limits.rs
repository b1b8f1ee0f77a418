//! Limits of processes on fake trees: set, checked, reported and watched.

use std::time::Duration;

use taut_api::enforcement::{LimitHit, LimitHits, LimitKind, ProcessLimits};

use super::*;

const LIMITS: ProcessLimits = ProcessLimits { memory: Bytes::mib(385), huge: Bytes::mib(64), processes: 81 };

fn vm() -> Name {
    "db1".parse().unwrap()
}

fn limited(limits: ProcessLimits, group: Option<GroupSettings>) -> HostPlan {
    let vm_share = VmShare { pid: 77, group, limits: Some(limits), ..VmShare::default() };
    HostPlan { vms: [(vm(), vm_share)].into(), ..HostPlan::default() }
}

/// Settles a plan, and returns the limits that are not in force.
fn unlimited(groups: &mut Groups, plan: &HostPlan) -> Vec<(LimitKind, String)> {
    unlimited_at(groups, plan, Instant::now())
}

fn unlimited_at(groups: &mut Groups, plan: &HostPlan, now: Instant) -> Vec<(LimitKind, String)> {
    let mut report = HostReport::default();
    groups.make(plan, now, &mut report).unwrap();
    groups.clear(plan).unwrap();
    report.vms.into_values().flat_map(|vm| vm.unlimited).collect()
}

#[test]
fn with_cgroup_v1_a_waiting_process_is_limited_in_two_groups() {
    let host = Host::v1();
    host.write("sys/fs/cgroup/pids/cgroup.procs", "");
    host.write("proc/swaps", "Filename Type\n");
    host.is_in("8:pids:/\n4:memory:/\n2:cpuset:/\n1:cpu,cpuacct:/box\n0::/\n");
    let mut groups = host.groups();
    groups.limit(&vm(), 77, &LIMITS, Instant::now()).unwrap();
    let at = |path: &str| host.read(&path.replace("GROUP", NAME));
    for (path, content) in [
        ("memory/GROUP/memory.limit_in_bytes", "403701760"),
        ("memory/GROUP/cgroup.procs", "77"),
        ("pids/GROUP/pids.max", "81"),
        ("pids/GROUP/cgroup.procs", "77"),
    ] {
        assert_eq!(at(path), content, "{path}");
    }
    assert!(!host.root.path().join("sys/fs/cgroup/cpu/box").join(NAME).exists(), "it has no shares");
    // With shares it has a third group, which goes with them.
    host.write(&format!("sys/fs/cgroup/memory/{NAME}/memory.memsw.limit_in_bytes"), "");
    host.write("proc/77/cgroup", &format!("8:pids:/{NAME}\n4:memory:/{NAME}\n1:cpu,cpuacct:/box\n0::/\n"));
    assert_eq!(unlimited(&mut groups, &limited(LIMITS, Some(settings()))), []);
    assert_eq!(at("memory/GROUP/memory.memsw.limit_in_bytes"), "403701760");
    assert_eq!(at("memory/GROUP/memory.soft_limit_in_bytes"), "239075328");
    assert_eq!(at("cpu/box/GROUP/cgroup.procs"), "77");
    assert_eq!(unlimited(&mut groups, &limited(LIMITS, None)), []);
    assert!(at("cpu/box/GROUP/cpu.shares").contains("No such file"));
    assert_eq!(at("memory/GROUP/memory.soft_limit_in_bytes"), "9223372036854771712");
    // The next daemon finds the groups, and removes them when the process has ended.
    let mut next = host.groups();
    assert_eq!(unlimited(&mut next, &limited(LIMITS, None)), []);
    clear(&mut next);
    assert!(next.is_idle());
    assert!(at("pids/GROUP/pids.max").contains("No such file"));
}

#[test]
fn with_cgroup_v1_a_process_that_ends_meanwhile_leaves_no_group() {
    let host = Host::v1();
    host.write("sys/fs/cgroup/pids/cgroup.procs", "");
    host.write("sys/fs/cgroup/memory/box/cgroup.procs", "");
    host.is_in("8:pids:/\n4:memory:/box\n");
    // The process ends when it is put into its first group.
    let end = |dir: &Path, _| {
        let root = dir.ancestors().find(|folder| folder.join("proc/77").exists()).unwrap();
        fs::write(root.join("proc/77/cgroup"), "8:pids:/\n4:memory:/\n").unwrap();
        Err(io::ErrorKind::NotFound.into())
    };
    let mut groups = Groups::with_kernel(host.root.path(), host.ledger(), end).unwrap();
    groups.limit(&vm(), 77, &LIMITS, Instant::now()).unwrap();
    assert!(host.read(&format!("pids/{NAME}/pids.max")).contains("81"));
    clear(&mut groups);
    for group in ["pids", "memory", "memory/box"] {
        let group = host.root.path().join("sys/fs/cgroup").join(group).join(NAME);
        assert!(!group.exists(), "{}", group.display());
    }
    assert!(groups.is_idle());
}

#[test]
fn with_cgroup_v2_limits_remain_when_shares_go() {
    let host = Host::v2();
    host.write("proc/self/mounts", "cgroup /sys/fs/cgroup cgroup2 rw,memory_hugetlb_accounting 0 0\n");
    host.write(&format!("sys/fs/cgroup/{NAME}/memory.swap.max"), "max");
    let mut groups = host.groups();
    groups.limit(&vm(), 77, &LIMITS, Instant::now()).unwrap();
    let at = |file: &str| host.read(&format!("{NAME}/{file}"));
    let switched =
        |groups: &Groups| groups.record.switched_on.values().flatten().cloned().collect::<Vec<_>>();
    assert_eq!(switched(&groups), ["memory", "pids"]);
    let expect =
        |files: &[(&str, &str)]| files.iter().for_each(|(file, is)| assert_eq!(at(file), *is, "{file}"));
    // Huge pages are charged to groups on this host.
    let limits = [("memory.max", "470810624"), ("memory.swap.max", "470810624"), ("memory.oom.group", "1")];
    expect(&limits);
    expect(&[("pids.max", "81"), ("cgroup.procs", "77")]);
    let reserved = GroupSettings { no_swap: true, ..settings() };
    assert_eq!(unlimited(&mut groups, &limited(LIMITS, Some(reserved))), []);
    expect(&[("memory.swap.max", "0"), ("cpu.weight", "400"), ("memory.min", "67108864")]);
    assert_eq!(unlimited(&mut groups, &limited(LIMITS, None)), []);
    expect(&limits);
    expect(&[("cpu.weight", "100"), ("cpu.max", "max 100000"), ("memory.min", "0"), ("memory.high", "max")]);
    clear(&mut groups);
    assert!(groups.is_idle());
}

#[test]
fn limits_that_this_host_cannot_keep_are_reported() {
    let host = Host::v1();
    host.write("proc/swaps", "Filename Type\n/dev/vdb partition\n");
    host.is_in("4:memory:/\n1:cpu,cpuacct:/box\n");
    let mut groups = host.groups();
    groups.limit(&vm(), 77, &LIMITS, Instant::now()).unwrap();
    let told = unlimited(&mut groups, &limited(LIMITS, None));
    assert_eq!(
        told.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(),
        [LimitKind::Swap, LimitKind::Processes]
    );
    assert!(told[0].1.ends_with("memory.memsw.limit_in_bytes is absent; hint: boot with swapaccount=1"));
    assert!(told[1].1.contains("no pids controller"), "{told:?}");
}

#[test]
fn limits_are_checked_once_a_minute() {
    let host = Host::v1();
    host.write("proc/swaps", "Filename Type\n/dev/vdb partition\n");
    host.write("sys/fs/cgroup/pids/cgroup.procs", "");
    host.is_in("8:pids:/\n4:memory:/\n1:cpu,cpuacct:/box\n");
    let (mut groups, begin) = (host.groups(), Instant::now());
    groups.limit(&vm(), 77, &LIMITS, begin).unwrap();
    // A limit that cannot be set at first, and one that somebody else changes.
    let swap = format!("memory/{NAME}/memory.memsw.limit_in_bytes");
    host.write(&format!("sys/fs/cgroup/{swap}"), "9223372036854771712");
    host.write(&format!("sys/fs/cgroup/pids/{NAME}/pids.max"), "max");
    let plan = limited(LIMITS, None);
    let mut after = |seconds| {
        let told = unlimited_at(&mut groups, &plan, begin + Duration::from_secs(seconds));
        let kinds: Vec<_> = told.into_iter().map(|(kind, _)| kind).collect();
        (kinds, host.read(&swap), host.read(&format!("pids/{NAME}/pids.max")))
    };
    let as_before = (vec![LimitKind::Swap], "9223372036854771712".to_owned(), "max".to_owned());
    assert_eq!(after(1), as_before);
    assert_eq!(after(59), as_before);
    assert_eq!(after(60), (vec![], "403701760".to_owned(), "81".to_owned()));
}

/// A fake host of cgroup v2 with a scope that has these controllers.
fn with_scope(controllers: &str) -> (Host, Groups) {
    let host = Host::v2();
    host.write("sys/fs/cgroup/vms.slice/cgroup.controllers", controllers);
    let scope = host.root.path().join("sys/fs/cgroup/vms.slice");
    let groups = Groups::new(host.root.path(), Some(&scope), host.ledger()).unwrap();
    (host, groups)
}

#[test]
fn in_a_scope_of_cgroup_v2_a_vm_has_one_group_with_all_limits() {
    let (host, mut groups) = with_scope("cpu memory pids");
    groups.limit(&vm(), 77, &LIMITS, Instant::now()).unwrap();
    assert_eq!(unlimited(&mut groups, &limited(LIMITS, None)), []);
    let at = |file: &str| host.read(&format!("vms.slice/{NAME}/{file}"));
    for (file, is) in [("memory.max", "403701760"), ("pids.max", "81"), ("cgroup.procs", "77")] {
        assert_eq!(at(file), is, "{file}");
    }
    assert!(!host.root.path().join("sys/fs/cgroup").join(NAME).exists());
    clear(&mut groups);
    assert!(groups.is_idle());
    assert_eq!(host.read("system.slice/tautd.service/cgroup.procs"), "77");
}

#[test]
fn a_controller_that_a_scope_lacks_is_not_looked_for_elsewhere() {
    // The root has the controllers of processes and of disks.
    let (host, mut groups) = with_scope("cpu memory");
    let v2 = Hierarchy::V2;
    let none = Hierarchy::None;
    assert_eq!(groups.controllers(), Controllers { cpu: v2, memory: v2, cpuset: none, disk: none });
    groups.limit(&vm(), 77, &LIMITS, Instant::now()).unwrap();
    for group in [None, Some(settings())] {
        let told = unlimited(&mut groups, &limited(LIMITS, group));
        assert_eq!(told.len(), 1, "{told:?}");
        let (kind, why) = &told[0];
        assert_eq!(*kind, LimitKind::Processes);
        assert!(
            why.contains("/vms.slice has no pids controller: ") && why.contains("hint: enable it in "),
            "{why}"
        );
    }
    assert_eq!(host.read(&format!("vms.slice/{NAME}/cgroup.procs")), "77");
    assert!(!host.root.path().join("sys/fs/cgroup").join(NAME).exists(), "a process has one group");
}

#[test]
fn only_vms_that_could_not_be_recorded_are_reported_as_unlimited() {
    let host = Host::v2();
    host.write("proc/78/cgroup", "0::/system.slice/tautd.service\n");
    let mut groups = host.groups();
    let (now, mut report) = (Instant::now(), HostReport::default());
    let mut plan = limited(LIMITS, Some(settings()));
    groups.make(&plan, now, &mut report).unwrap();
    let next = VmShare { pid: 78, limits: Some(LIMITS), ..VmShare::default() };
    plan.vms.insert("db2".parse().unwrap(), next);
    host.write("var/lib/taut/host-changes.json", "not a ledger");
    groups.make(&plan, now, &mut HostReport::default()).unwrap_err();
    groups.note_unrecorded(&plan, &mut report);
    assert_eq!(report.vms[&vm()].unlimited, [].into());
    let told = &report.vms[&"db2".parse().unwrap()].unlimited;
    assert_eq!(told.keys().collect::<Vec<_>>(), [&LimitKind::Memory, &LimitKind::Processes]);
    assert!(told.values().all(|why| why.contains("could not be recorded")), "{told:?}");
}

/// Watches the processes of a plan, and returns the limits that each has reached.
fn hits(groups: &mut Groups, plan: &HostPlan, now: Instant) -> Vec<(u32, LimitHits)> {
    let mut report = HostReport::default();
    groups.watch(plan, now, &mut report);
    report.vms.into_values().flat_map(|vm| vm.hits).collect()
}

#[test]
fn what_a_process_has_reached_is_reported_until_its_group_is_gone() {
    let host = Host::v2();
    let mut groups = host.groups();
    let (plan, begin) = (limited(LIMITS, None), Instant::now());
    groups.limit(&vm(), 77, &LIMITS, Instant::now()).unwrap();
    let hits =
        |groups: &mut Groups, plan: &HostPlan, ms| hits(groups, plan, begin + Duration::from_millis(ms));
    assert_eq!(hits(&mut groups, &plan, 0), []);
    host.write(&format!("sys/fs/cgroup/{NAME}/pids.events"), "max 3\n");
    assert_eq!(hits(&mut groups, &plan, 500), [], "a process that runs is looked at once a second");
    let (pid, told) = hits(&mut groups, &plan, 1000)[0];
    assert_eq!((pid, told.processes), (77, Some(LimitHit { count: 3, limit: 81 })));
    assert_eq!(hits(&mut groups, &plan, 1001)[0].1, told);
    host.write(&format!("sys/fs/cgroup/{NAME}/memory.events"), "oom 1\noom_kill 1\n");
    let gone = HostPlan::default();
    let told = hits(&mut groups, &gone, 1002)[0].1;
    assert_eq!(told.memory, Some(LimitHit { count: 1, limit: LIMITS.memory.0 }));
    clear(&mut groups);
    assert_eq!(hits(&mut groups, &gone, 1003), []);
}

#[test]
fn descriptors_are_told_without_control_groups_too() {
    let host = Host { root: tempfile::tempdir().unwrap() };
    host.write(
        "proc/77/limits",
        "Max open files            64                   64                   files\n",
    );
    (0..64).for_each(|number| host.write(&format!("proc/77/fd/{number}"), ""));
    let (mut groups, plan, begin) = (host.groups(), limited(LIMITS, None), Instant::now());
    let full = LimitHits { descriptors: Some(LimitHit { count: 64, limit: 64 }), ..LimitHits::default() };
    // Between two looks, the last one counts: otherwise the event is raised again and again.
    for ms in [0, 500, 1000, 1500] {
        let now = begin + Duration::from_millis(ms);
        assert_eq!(hits(&mut groups, &plan, now), [(77, full)], "after {ms} ms");
    }
    assert_eq!(hits(&mut groups, &HostPlan::default(), begin + Duration::from_millis(1600)), []);
    fs::remove_file(host.root.path().join("proc/77/fd/7")).unwrap();
    assert_eq!(hits(&mut groups, &plan, begin + Duration::from_millis(1900)), [], "it is not due");
}
