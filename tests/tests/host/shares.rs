//! Shares and limits on this host (VN-14): control groups come, change under a running VM, and go
//! again, whatever dies.

use std::fs;

use taut_tests::{Controller, Prerequisite, Taut, cpu_group, eventually, require};

const MICRO: &str = "kind = \"micro\"\nmemory = \"64MiB\"\n";

fn pid(taut: &Taut, vm: &str) -> u64 {
    taut.json(["vm", "show", vm])["status"]["pid"].as_u64().unwrap()
}

fn set(taut: &Taut, vm: &str, args: &[&str]) {
    taut.ok([&["vm", "set", vm], args].concat());
}

/// Waits for these contents of `cpu.shares` and `cpu.cfs_quota_us`.
fn is(vm: u64, shares: &str, quota: &str) {
    eventually(&format!("process {vm} has {shares} and {quota}"), || {
        let folder = cpu_group(vm);
        let read = |file: &str| fs::read_to_string(folder.join(file)).unwrap_or_default().trim().to_owned();
        (read("cpu.shares") == shares && read("cpu.cfs_quota_us") == quota).then_some(())
    });
}

#[test]
fn shares_and_limits_apply_to_running_vms_and_are_restored() {
    if !require(Prerequisite::CgroupV1(Controller::Cpu)) {
        return;
    }
    let mut taut = Taut::start().with_lan();
    taut.boot("m1", MICRO);
    taut.boot("m2", MICRO);
    let (first, second) = (pid(&taut, "m1"), pid(&taut, "m2"));
    let home = cpu_group(first);
    set(&taut, "m1", &["--cpu-shares", "high", "--cpu-limit", "50%"]);
    is(first, "2048", "50000");
    is(second, "1024", "-1");
    let group = cpu_group(first);
    assert_eq!(group.parent(), Some(&*home));
    let explained = taut.ok(["vm", "explain", "m1"]);
    assert!(explained.contains("it has 2000 of all running VMs' 3000 CPU shares (high)"), "{explained}");
    assert!(explained.contains("it gets 0.5 pCPUs at most (50%)"), "{explained}");
    let refused = taut.refused(["vm", "set", "m1", "--cpu-reservation", "full"]);
    assert!(refused.contains("reserves 1 pCPU and is limited to 0.5"), "{refused}");

    set(&taut, "m1", &["--cpu-limit", "none", "--cpu-shares", "100"]);
    is(first, "102", "-1");
    // The next daemon adopts the groups of the last one.
    taut.kill_daemon();
    taut.restart_daemon();
    set(&taut, "m1", &["--cpu-shares", "low"]);
    is(first, "512", "-1");
    taut.ok(["host", "restore"]);
    eventually("put back by order", || (cpu_group(first) == home).then_some(()));
    set(&taut, "m1", &["--cpu-shares", "high"]);
    is(first, "2048", "-1");
    taut.ok(["vm", "stop", "m1"]);
    eventually("its group goes with its process, and the other's with the last reason", || {
        (!group.exists() && cpu_group(second) == home).then_some(())
    });
    taut.ok(["vm", "start", "m1"]);
    eventually("a new process has a new group", || {
        let now = taut.json(["vm", "show", "m1"])["status"]["pid"].as_u64()?;
        (cpu_group(now) != home).then_some(())
    });
    set(&taut, "m1", &["--cpu-shares", "normal"]);
    eventually("nobody asks for anything", || (cpu_group(second) == home).then_some(()));
    let left = fs::read_dir(&home).unwrap().flatten();
    let left: Vec<_> = left
        .map(|entry| entry.file_name())
        .filter(|name| name.to_string_lossy().ends_with(&format!(".{first}")))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}
