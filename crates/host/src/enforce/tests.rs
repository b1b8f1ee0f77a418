//! All parts together on a fake tree of cgroup v1.

use std::fs;
use std::os::unix::fs::symlink;

use taut_api::Bytes;
use taut_api::enforcement::{CpuShare, GroupSettings, VmShare};

use super::*;
use crate::kernel::pci::fixture::{VF, machine};

const FILES: [(&str, &str); 8] = [
    ("sys/devices/system/cpu/online", "0-3\n"),
    ("proc/irq/24/smp_affinity_list", "0-3\n"),
    ("sys/devices/virtual/workqueue/cpumask", "f\n"),
    ("sys/fs/cgroup/cpuset/cpuset.cpus", "0-3\n"),
    ("sys/fs/cgroup/cpuset/cpuset.mems", "0\n"),
    ("sys/fs/cgroup/cpu/cpu.shares", "1024\n"),
    ("proc/77/cgroup", "2:cpuset:/\n1:cpu,cpuacct:/\n0::/\n"),
    ("proc/77/stat", "77 (qemu) S 0\n"),
];

fn host() -> tempfile::TempDir {
    let root = machine();
    for (path, content) in FILES {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    root
}

fn enforcer(root: &Path) -> Enforcer {
    Enforcer::new(root, None, &Ledger::new(root, &root.join("var/lib/taut"))).unwrap()
}

fn name() -> Name {
    "db1".parse().unwrap()
}

/// A plan for a VM that owns pCPU 2 and has a control group.
fn plan() -> HostPlan {
    let group = GroupSettings {
        cpu_shares: 2000,
        cpu_limit: None,
        memory_min: Bytes(0),
        memory_low: Bytes(0),
        memory_high: None,
        no_swap: false,
        disk_shares: None,
    };
    let vm = VmShare {
        pid: 77,
        cpus: CpuShare::Exclusive { cpus: vec![2], idle: vec![] },
        group: Some(group),
        priority: true,
        ..VmShare::default()
    };
    HostPlan { vms: [(name(), vm)].into(), ..HostPlan::default() }
}

/// A plan for the same VM that wants nothing.
fn bare() -> HostPlan {
    HostPlan { vms: [(name(), VmShare { pid: 77, ..VmShare::default() })].into(), ..HostPlan::default() }
}

#[test]
fn a_plan_is_in_force_until_another_process_settles_an_empty_one() {
    let root = host();
    let mut first = enforcer(root.path());
    assert!(first.is_idle());
    let report = first.settle(&plan());
    assert_eq!((report.cpu_problems, report.unrecorded), (vec![], vec![]));
    let vm = &report.vms[&name()];
    assert_eq!(
        (&vm.cpus[..], vm.grouped, vm.exclusive),
        (&[2][..], true, false),
        "its vCPU is not there yet"
    );
    let irq = root.path().join("proc/irq/24/smp_affinity_list");
    assert_eq!(fs::read_to_string(&irq).unwrap(), "0-1,3");

    let mut next = enforcer(root.path());
    assert_eq!(next.report().vms[&name()].cpus, [2], "known before the first plan");
    assert_eq!(next.settle(&bare()), HostReport::default());
    assert!(next.is_idle());
    for (path, content) in FILES {
        assert_eq!(fs::read_to_string(root.path().join(path)).unwrap(), content, "{path}");
    }
}

#[test]
fn without_a_ledger_the_report_names_what_stays_and_keeps_the_rest() {
    let root = host();
    let mut enforcer = enforcer(root.path());
    let before = enforcer.settle(&plan());
    let ledger = root.path().join("var/lib/taut/host-changes.json");
    let book = fs::read(&ledger).unwrap();
    fs::write(&ledger, "not a ledger").unwrap();
    let report = enforcer.settle(&bare());
    let named: Vec<_> = report.unrecorded.iter().map(|unrecorded| unrecorded.what).collect();
    assert!(named.contains(&"exclusive pCPUs"), "{named:?}");
    assert!(report.unrecorded[0].to_string().contains("is not a ledger of changed settings"));
    assert_eq!(report.vms[&name()].cpus, before.vms[&name()].cpus);
    fs::write(&ledger, book).unwrap();
    assert_eq!(enforcer.settle(&bare()), HostReport::default());
}

#[test]
fn a_device_stays_taken_as_long_as_the_plan_has_its_vm() {
    let root = host();
    let (vm, vf) = (name(), VF.parse().unwrap());
    let mut first = enforcer(root.path());
    // The fake tree has no kernel that binds drivers, so the device has the right one already.
    let driver = root.path().join("sys/bus/pci/devices").join(VF).join("driver");
    fs::remove_file(&driver).unwrap();
    symlink("../../drivers/vfio-pci", driver).unwrap();
    first.take_device(&vm, vf).unwrap();
    let taken = [(vf, vm)].into();
    assert_eq!(first.report().devices, taken);
    assert_eq!(first.settle(&bare()).devices, taken);
    let mut next = enforcer(root.path());
    assert_eq!(next.report().devices, taken);
    assert_eq!(next.settle(&HostPlan::default()), HostReport::default());
    assert!(next.is_idle());
}
