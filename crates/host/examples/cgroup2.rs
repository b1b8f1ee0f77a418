//! Tests a VM's control group and partition of cgroup v2 on a real kernel.
//!
//! Runs as `init` of a guest with four CPUs, prints every step and powers off. Build it with
//! `RUSTFLAGS="-C target-feature=+crt-static" cargo build -p taut-host --example cgroup2
//! --target x86_64-unknown-linux-gnu`, and pack it into an initial RAM file system as `/init`.

use std::fs;
use std::path::Path;
use std::process::Command;

use rustix::mount::{MountFlags, mount};
use rustix::system::{RebootCommand, reboot};
use taut_api::enforcement::{CpuShare, GroupSettings, HostPlan, VmShare};
use taut_api::{Bytes, Name};
use taut_host::enforce::Enforcer;
use taut_host::ledger::Ledger;

fn main() {
    if std::env::args().count() > 1 {
        return sleep();
    }
    for (what, to) in [("proc", "/proc"), ("sysfs", "/sys"), ("cgroup2", "/sys/fs/cgroup")] {
        fs::create_dir_all(to).expect("a folder");
        mount(what, to, what, MountFlags::empty(), None).expect("mounted");
    }
    println!("kernel {}", fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim());
    run();
    println!("done");
    let _ = reboot(RebootCommand::PowerOff);
}

/// Runs as the process of a VM: two vCPU threads and another one.
fn sleep() {
    let thread = |name: &str| {
        let spawned = std::thread::Builder::new().name(name.to_owned());
        spawned.spawn(|| std::thread::sleep(std::time::Duration::from_secs(1000))).expect("a thread")
    };
    for thread in ["CPU 0/KVM", "CPU 1/KVM", "IO thread"].map(thread) {
        let _ = thread.join();
    }
}

fn run() {
    let vm: Name = "db1".parse().expect("a name");
    let mut child = Command::new("/proc/self/exe").arg("vm").spawn().expect("a process");
    let pid = child.id();
    std::thread::sleep(std::time::Duration::from_millis(300));
    let before = state(pid);
    let group = GroupSettings {
        cpu_shares: 4000,
        cpu_limit: Some(1500),
        memory_min: Bytes::mib(8),
        memory_low: Bytes::mib(16),
        memory_high: Some(Bytes::mib(32)),
        no_swap: true,
        disk_shares: Some(2000),
    };
    let cpus = CpuShare::Exclusive { cpus: vec![1, 2], idle: vec![3] };
    let share = VmShare { pid, cpus, group: Some(group), ..VmShare::default() };
    let plan = HostPlan { vms: [(vm, share)].into(), ..HostPlan::default() };
    let ledger = Ledger::new(Path::new("/"), Path::new("/ledger"));
    let mut enforcer = Enforcer::new(Path::new("/"), None, &ledger).expect("a ledger");
    println!("controllers: {:?}", enforcer.controllers());
    println!("settled: {:?}", enforcer.settle(&plan));
    show(pid);
    println!("again: {:?}", enforcer.settle(&plan));
    println!("back: {:?}", enforcer.settle(&HostPlan::default()));
    println!("all of it gone: {}", enforcer.is_idle());
    let after = state(pid);
    println!("as before: {}", before == after);
    if before != after {
        println!("{before}\n---\n{after}");
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// Describes where threads may run, and which groups exist.
fn state(pid: u32) -> String {
    let mut text = String::new();
    for task in fs::read_dir(format!("/proc/{pid}/task")).expect("tasks").flatten() {
        let read = |file: &str| fs::read_to_string(task.path().join(file)).unwrap_or_default();
        let status = read("status");
        let allowed = status.lines().find(|line| line.starts_with("Cpus_allowed_list")).unwrap_or("");
        text += &format!("{} {allowed} {}\n", read("comm").trim(), read("cgroup").trim());
    }
    let groups = fs::read_dir("/sys/fs/cgroup").expect("groups").flatten();
    let groups: Vec<_> =
        groups.filter(|entry| entry.path().is_dir()).map(|entry| entry.file_name()).collect();
    text + &format!(
        "{groups:?} {}",
        fs::read_to_string("/sys/fs/cgroup/cgroup.subtree_control").unwrap_or_default().trim()
    )
}

fn show(pid: u32) {
    println!("{}", state(pid));
    let group = format!("/sys/fs/cgroup/taut.vm.db1.{pid}");
    for file in [
        "cgroup.type",
        "cpu.weight",
        "cpu.max",
        "memory.min",
        "memory.low",
        "memory.high",
        "memory.swap.max",
        "cpuset.cpus.effective",
        "vcpus/cpuset.cpus.effective",
        "vcpus/cpuset.cpus.partition",
        "../cpuset.cpus.isolated",
    ] {
        let content = fs::read_to_string(Path::new(&group).join(file));
        println!("{file}: {}", content.unwrap_or_else(|error| error.to_string()).trim());
    }
}
