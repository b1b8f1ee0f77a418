//! Groups on fake trees of both cgroup versions: what is written, and that all of it is removed.

mod limits;

use taut_api::enforcement::{GroupSettings, VmReport, VmShare};
use taut_api::{Bytes, Name};

use super::*;

const NAME: &str = "taut.vm.db1.77";

/// A fake host with process 77.
struct Host {
    root: tempfile::TempDir,
}

impl Host {
    fn v1() -> Self {
        let host = Self { root: tempfile::tempdir().unwrap() };
        host.write("sys/fs/cgroup/cpu/cpu.shares", "1024");
        host.write("sys/fs/cgroup/cpu/box/cgroup.procs", "");
        host.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
        host.write("sys/fs/cgroup/cpuset/cpuset.cpus", "0-1");
        host.is_in("4:memory:/\n2:cpuset:/\n1:cpu,cpuacct:/box\n0::/\n");
        host
    }

    fn v2() -> Self {
        let host = Self { root: tempfile::tempdir().unwrap() };
        host.write("sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory pids");
        host.write("sys/fs/cgroup/cgroup.subtree_control", "cpu io");
        host.write("sys/fs/cgroup/system.slice/tautd.service/cgroup.controllers", "cpu");
        host.is_in("0::/system.slice/tautd.service\n");
        host
    }

    fn is_in(&self, text: &str) {
        self.write("proc/77/cgroup", text);
    }

    fn write(&self, path: &str, content: &str) {
        let path = self.root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.root.path().join("sys/fs/cgroup").join(path))
            .unwrap_or_else(|error| error.to_string())
    }

    fn groups(&self) -> Groups {
        Groups::new(self.root.path(), None, self.ledger()).unwrap()
    }

    fn ledger(&self) -> Ledger {
        Ledger::new(self.root.path(), &self.root.path().join("var/lib/taut"))
    }
}

fn settings() -> GroupSettings {
    GroupSettings {
        cpu_shares: 4000,
        cpu_limit: Some(1500),
        memory_min: Bytes::mib(64),
        memory_low: Bytes::mib(100),
        memory_high: Some(Bytes::mib(128)),
        no_swap: false,
        disk_shares: None,
    }
}

fn plan(settings: GroupSettings) -> HostPlan {
    let vm = VmShare { pid: 77, group: Some(settings), ..VmShare::default() };
    HostPlan { vms: [("db1".parse().unwrap(), vm)].into(), ..HostPlan::default() }
}

/// Makes the groups, and returns what is reported for the VM.
fn make(groups: &mut Groups, settings: GroupSettings) -> VmReport {
    let mut report = HostReport::default();
    groups.make(&plan(settings), Instant::now(), &mut report).unwrap();
    report.vms.into_values().next().unwrap()
}

fn clear(groups: &mut Groups) {
    groups.clear(&HostPlan::default()).unwrap();
}

#[test]
fn with_cgroup_v1_a_vm_has_a_group_in_each_hierarchy_below_its_home() {
    let host = Host::v1();
    let mut groups = host.groups();
    let v1 = Hierarchy::V1;
    let controllers = Controllers { cpu: v1, memory: v1, cpuset: v1, disk: Hierarchy::None };
    assert_eq!(groups.controllers(), controllers);
    let told = make(&mut groups, settings());
    assert_eq!((told.grouped, told.group_problem), (true, None));
    let noted = host.ledger().book().unwrap().groups;
    assert_eq!(noted.made.len(), 2);
    let at = |path: &str| host.read(&path.replace("GROUP", NAME));
    for (path, content) in [
        ("cpu/box/GROUP/cpu.shares", "4096"),
        ("cpu/box/GROUP/cpu.cfs_quota_us", "150000"),
        ("cpu/box/GROUP/cpu.cfs_period_us", "100000"),
        ("cpu/box/GROUP/cgroup.procs", "77"),
        ("memory/GROUP/memory.soft_limit_in_bytes", "239075328"),
        ("memory/GROUP/cgroup.procs", "77"),
    ] {
        assert_eq!(at(path), content, "{path}");
    }
    assert!(
        at("memory/GROUP/memory.limit_in_bytes").contains("No such file"),
        "no limit that could kill QEMU"
    );
    host.is_in(&format!("4:memory:/{NAME}\n1:cpu,cpuacct:/box/{NAME}\n"));
    // The settings change while it runs; the process is not moved again.
    fs::write(host.root.path().join("sys/fs/cgroup/cpu/box").join(NAME).join("cgroup.procs"), "77\n78")
        .unwrap();
    make(&mut groups, GroupSettings { cpu_shares: 1, cpu_limit: None, ..settings() });
    assert_eq!(host.ledger().book().unwrap().groups, noted, "nothing new");
    assert_eq!(
        (at("cpu/box/GROUP/cpu.shares"), at("cpu/box/GROUP/cpu.cfs_quota_us")),
        ("2".into(), "-1".into())
    );
    assert_eq!(at("cpu/box/GROUP/cgroup.procs"), "77\n78");
    // The next daemon knows from the ledger alone.
    let mut next = host.groups();
    clear(&mut next);
    assert!(next.is_idle() && host.groups().is_idle());
    assert!(
        at("cpu/box/GROUP/cpu.shares").contains("No such file")
            && at("memory/GROUP/cgroup.procs").contains("No such file")
    );
    assert_eq!(at("cpu/box/cgroup.procs"), "78", "its members returned to their former group");
}

#[test]
fn with_cgroup_v2_a_vm_has_one_group_and_goes_home_to_its_service() {
    let host = Host::v2();
    let mut groups = host.groups();
    let v2 = Hierarchy::V2;
    let controllers = Controllers { cpu: v2, memory: v2, cpuset: v2, disk: v2 };
    assert_eq!(groups.controllers(), controllers);
    assert_eq!(make(&mut groups, settings()).group_problem, None);
    let noted = host.ledger().book().unwrap().groups;
    let switched: Vec<_> = noted.switched_on.values().flatten().collect();
    assert_eq!(switched, ["cpuset", "memory"], "cpu was on already");
    let at = |file: &str| host.read(&format!("{NAME}/{file}"));
    for (file, content) in [
        ("cpu.weight", "400"),
        ("cpu.max", "150000 100000"),
        ("memory.min", "67108864"),
        ("memory.low", "239075328"),
        ("memory.high", "268435456"),
        ("memory.swap.max", "max"),
        ("cgroup.procs", "77"),
    ] {
        assert_eq!(at(file), content, "{file}");
    }
    assert!(at("memory.max").contains("No such file"), "no limit that could kill QEMU");
    assert!(host.root.path().join("sys/fs/cgroup").join(NAME).exists());
    clear(&mut groups);
    assert!(groups.is_idle(), "{:?}", groups.record);
    assert_eq!(host.read("system.slice/tautd.service/cgroup.procs"), "77");
    assert_eq!(host.read("cgroup.subtree_control"), "-cpuset -memory");
}

#[test]
fn removing_a_group_with_a_subgroup_is_tried_again() {
    let host = Host::v2();
    let mut groups = host.groups();
    make(&mut groups, settings());
    let inner = host.root.path().join("sys/fs/cgroup").join(NAME).join("vcpus");
    fs::create_dir(&inner).unwrap();
    clear(&mut groups);
    assert_eq!((groups.record.made.len(), groups.record.switched_on.len()), (1, 1));
    fs::remove_dir(inner).unwrap();
    clear(&mut groups);
    assert!(groups.is_idle());
}

#[test]
fn without_a_ledger_no_group_is_made() {
    let host = Host::v2();
    let mut groups = host.groups();
    host.write("var/lib/taut/host-changes.json", "not a ledger");
    let made = groups.make(&plan(settings()), Instant::now(), &mut HostReport::default());
    assert!(matches!(made, Err(LedgerError::Strange { .. })));
    assert!(!host.root.path().join("sys/fs/cgroup").join(NAME).exists());
    assert_eq!(host.read("cgroup.subtree_control"), "cpu io");
}

#[test]
fn a_host_without_controllers_has_no_groups() {
    let root = tempfile::tempdir().unwrap();
    let ledger = Ledger::new(root.path(), &root.path().join("var/lib/taut"));
    let mut groups = Groups::new(root.path(), None, ledger).unwrap();
    assert_eq!(groups.controllers(), Controllers::default());
    make(&mut groups, settings());
    assert!(groups.is_idle());
}

fn with_disk(disk_shares: Option<u64>) -> GroupSettings {
    GroupSettings { disk_shares, ..settings() }
}

fn weightless(groups: &mut Groups, shares: u64) -> Option<String> {
    let told = make(groups, with_disk(Some(shares)));
    assert_eq!(told.group_problem, None);
    told.weightless
}

#[test]
fn a_disks_weight_is_set_and_reported_as_weightless_unless_a_scheduler_honours_it() {
    let host = Host::v1();
    host.write("sys/fs/cgroup/blkio/blkio.reset_stats", "");
    host.is_in("5:blkio:/\n4:memory:/\n2:cpuset:/\n1:cpu,cpuacct:/box\n0::/\n");
    let mut groups = host.groups();
    make(&mut groups, with_disk(None));
    assert!(!host.root.path().join("sys/fs/cgroup/blkio").join(NAME).exists(), "no disk has shares");
    let why = weightless(&mut groups, 2000).unwrap();
    assert!(why.contains("no blkio.bfq.weight in ") && why.contains("hint: "), "{why}");
    // The kernel has BFQ.
    host.write(&format!("sys/fs/cgroup/blkio/{NAME}/blkio.bfq.weight"), "100");
    host.write("sys/block/vda/queue/scheduler", "[none] mq-deadline bfq\n");
    let why = weightless(&mut groups, 2000).unwrap();
    assert!(why.contains("(blkio.bfq.weight) and have no effect: no block device"), "{why}");
    host.write("sys/block/vda/queue/scheduler", "none mq-deadline [bfq]\n");
    for (shares, weight) in [(2000, "200"), (1, "1"), (1_000_000, "1000")] {
        assert_eq!(weightless(&mut groups, shares), None);
        assert_eq!(host.read(&format!("blkio/{NAME}/blkio.bfq.weight")), weight);
    }
    // Without disk shares, only the disk's group is removed.
    groups.clear(&plan(with_disk(None))).unwrap();
    assert!(!host.root.path().join("sys/fs/cgroup/blkio").join(NAME).exists());
    assert_eq!(host.read(&format!("memory/{NAME}/cgroup.procs")), "77");
    clear(&mut groups);
    assert!(groups.is_idle());
}

#[test]
fn with_cgroup_v2_the_disks_weight_is_in_the_vms_group() {
    let host = Host::v2();
    let mut groups = host.groups();
    let why = weightless(&mut groups, 500).unwrap();
    assert!(why.contains("no io.weight and no io.bfq.weight in "), "{why}");
    for file in ["io.weight", "io.bfq.weight"] {
        host.write(&format!("sys/fs/cgroup/{NAME}/{file}"), "default 100");
    }
    assert!(weightless(&mut groups, 500).unwrap().contains("(io.weight, io.bfq.weight) and have no effect"));
    host.write("sys/fs/cgroup/io.cost.qos", "254:0 enable=1 ctrl=auto\n");
    assert_eq!(weightless(&mut groups, 50_000), None);
    assert_eq!(host.read(&format!("{NAME}/io.weight")), "default 5000");
    assert_eq!(host.read(&format!("{NAME}/io.bfq.weight")), "default 1000");
    clear(&mut groups);
    assert!(groups.is_idle());
}
