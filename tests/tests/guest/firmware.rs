//! A VM that stays in its firmware (PL6): what it was promised under KVM is observed from outside,
//! also where KVM runs no Linux. Limits of a running VM's disk.

#[path = "../host/latency/scope.rs"]
#[allow(dead_code, reason = "shared with the tests of the host")]
mod scope;

use std::path::Path;

use scope::Scope;
use serde_json::{Value, json};
use taut_tests::{Controller, Prerequisite, Taut, ask_monitor, cpu_group, eventually, require};

/// Returns a VM file with a disk that has no boot loader.
fn blank(taut: &Taut) -> String {
    let path = taut.file("blank.img", "");
    std::fs::File::options().write(true).open(&path).unwrap().set_len(1 << 20).unwrap();
    format!("memory = \"64MiB\"\n[disk]\npath = \"{}\"\n", path.display())
}

fn create(taut: &Taut, name: &str, text: &str) {
    let file = taut.file(&format!("{name}.toml"), text);
    taut.ok(["vm", "create", "-f", file.to_str().unwrap(), "--name", name]);
    taut.ok(["vm", "start", name]);
}

fn running(taut: &Taut, name: &str) -> Value {
    eventually("it runs", || {
        let status = taut.json(["vm", "show", name])["status"].clone();
        assert_ne!(status["phase"], "failed", "{status}\n{}", taut.logs());
        status["pid"].is_u64().then_some(status)
    })
}

fn of(pid: &Value, file: &str) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default()
}

#[test]
fn everything_promised_under_kvm_is_observed_from_outside() {
    if !require(Prerequisite::Kvm) {
        return;
    }
    let Some(scope) = Scope::enter() else { return };
    let dir: &'static str = Box::leak(scope.dir().to_str().unwrap().to_owned().into_boxed_str());
    let args: &'static [&'static str] = Box::leak(Box::new(["--cpuset", dir]));
    let taut = Taut::start_with(args);
    let before = scope.snapshot();
    let sensitive = "accelerator = \"kvm\"\nmemory_reservation = \"full\"\nlatency_sensitivity = \"high\"\n";
    let tables = "[cpu]\nreservation = \"full\"\n[halt]\ndesched = false\nspin = true\nmin_spin_us = 50\n";
    create(&taut, "fw", &format!("{sensitive}{}{tables}", blank(&taut)));
    let status = running(&taut, "fw");
    let cpu = eventually("its vCPU owns a pCPU", || {
        let status = taut.json(["vm", "show", "fw"])["status"]["latency"].clone();
        (status["state"] == "granted").then(|| status["cpus"][0].as_u64().unwrap())
    });
    let pid = &status["pid"];
    assert_eq!(status["accelerator"], "kvm");
    let line = of(pid, "cmdline").replace('\0', " ");
    for words in
        ["-accel kvm", "mem-lock=on,cpu-pm=on", "prealloc=on", "kvm-hint-dedicated=on", "kvm-poll-control=on"]
    {
        assert!(line.contains(words), "`{words}` is not in: {line}");
    }
    let locked_kib =
        |line: &str| line.strip_prefix("VmLck:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok();
    // QEMU has vCPUs a moment before it locks its memory.
    eventually("its 64 MiB are locked", || {
        let locked = of(pid, "status").lines().find_map(locked_kib);
        locked.filter(|kib| *kib >= 64 << 10)
    });
    // A vCPU that begins to run starts a thread of the kernel, which is moved off its pCPU.
    let vcpu = eventually("only its vCPU may run on its pCPU", || {
        let alone = scope.may_run_on(cpu);
        let names: Vec<_> = alone.iter().map(|tid| of(pid, &format!("task/{tid}/comm"))).collect();
        (names == ["CPU 0/KVM\n"]).then(|| alone[0])
    });
    eventually("its vCPU has no real-time priority", || {
        let stat = of(pid, &format!("task/{vcpu}/stat"));
        (stat.rsplit_once(')')?.1.split_whitespace().nth(38)? == "0").then_some(())
    });
    let bound = of(pid, &format!("task/{vcpu}/status"));
    assert!(bound.contains(&format!("Cpus_allowed_list:\t{cpu}\n")), "{bound}");
    let latency = format!("/sys/devices/system/cpu/cpu{cpu}/power/pm_qos_resume_latency_us");
    let bound = std::fs::read_to_string(&latency).unwrap_or_else(|_| "n/a\n".to_owned());
    assert_eq!(bound, "n/a\n");
    // `taut check --undo` does not lift the bound of the VM.
    taut.ok(["check", "host", "--undo"]);
    assert_eq!(std::fs::read_to_string(&latency).unwrap_or_else(|_| "n/a\n".to_owned()), bound);
    let seen = taut.json(["latency", "fw", "--duration", "0.5"]);
    let [vcpu] = seen["kvm"]["vcpus"].as_array().unwrap().as_slice() else { panic!("{seen}") };
    for counter in ["exits", "halt_exits", "halt_attempted_poll", "halt_wakeup", "halt_wait_ns"] {
        assert!(vcpu["counters"][counter].is_u64(), "{counter}: {seen}");
    }
    let explained = taut.ok(["vm", "explain", "fw"]);
    assert!(explained.contains("it runs under kvm") && explained.contains("cpu-pm"), "{explained}");
    let restart: Vec<_> = explained.lines().filter(|line| line.contains("next start")).collect();
    assert_eq!(restart, Vec::<&str>::new());
    taut.ok(["vm", "stop", "--force", "fw"]);
    eventually("the host is as before", || (scope.snapshot() == before).then_some(()));
}

#[test]
fn a_disk_is_limited_while_its_vm_runs() {
    let mut taut = Taut::start();
    create(&taut, "fw", &format!("{}limits = {{ iops = 500 }}\n", blank(&taut)));
    running(&taut, "fw");
    let monitor = taut.dir().join("run/vms/fw/qmp.sock");
    let has = |bandwidth: u64, iops: u64| {
        eventually("its disk has the limits", || {
            let disk = query_disk(&monitor)?;
            (disk["bps-total"] == json!(bandwidth) && disk["iops-total"] == json!(iops)).then_some(())
        });
    };
    has(0, 500);
    taut.ok(["vm", "set", "fw", "--disk-iops", "80", "--disk-bandwidth", "10MiB"]);
    has(10 << 20, 80);
    // The next daemon knows the limits and can take them away.
    taut.kill_daemon();
    taut.restart_daemon();
    has(10 << 20, 80);
    eventually("it is in force", || {
        let machine = taut.json(["vm", "show", "fw"])["status"]["machine"].clone();
        machine["missing"].is_null().then_some(())
    });
    taut.ok(["vm", "set", "fw", "--disk-iops", "none", "--disk-bandwidth", "none"]);
    has(0, 0);
    taut.ok(["vm", "stop", "--force", "fw"]);
}

/// Asks QEMU's monitor for the limits of the disk. Returns `None` while another client uses the
/// monitor.
fn query_disk(monitor: &Path) -> Option<Value> {
    let limits = json!({ "path": "/objects/disk0-limits", "property": "limits" });
    let answers = ask_monitor(monitor, &[json!({ "execute": "qom-get", "arguments": limits })])?;
    Some(answers[0]["return"].clone())
}

/// Returns the folder of a process's blkio group (cgroup v1).
fn group_of_disks(pid: &Value) -> String {
    let groups = of(pid, "cgroup");
    let line = groups.lines().find(|line| line.split(':').nth(1) == Some("blkio"));
    format!("/sys/fs/cgroup/blkio{}", line.expect("a group").splitn(3, ':').nth(2).unwrap())
}

#[test]
fn disk_shares_set_a_kernel_weight_and_remove_it_again() {
    if !require(Prerequisite::CgroupV1(Controller::Blkio)) {
        return;
    }
    let taut = Taut::start();
    create(&taut, "heavy", &blank(&taut));
    let pid = running(&taut, "heavy")["pid"].clone();
    let home = group_of_disks(&pid);
    taut.ok(["vm", "set", "heavy", "--disk-shares", "high"]);
    let own = eventually("it has a group", || Some(group_of_disks(&pid)).filter(|group| *group != home));
    assert!(own.ends_with(&format!("/taut.vm.heavy.{pid}")), "{own}");
    let explained = || taut.ok(["vm", "explain", "heavy"]);
    match std::fs::read_to_string(format!("{own}/blkio.bfq.weight")) {
        Ok(weight) => {
            assert_eq!(weight, "200\n");
            let said = explained();
            let told = ["its disk has 2000 shares (high)", "(blkio.bfq.weight) and have no effect"];
            assert!(told.iter().any(|words| said.contains(words)), "{said}");
        }
        Err(_) => assert!(explained().contains("no blkio.bfq.weight"), "{}", explained()),
    }
    // The other groups stay as long as a setting needs them.
    taut.ok(["vm", "set", "heavy", "--disk-shares", "normal", "--cpu-shares", "low"]);
    eventually("its disk is as any other", || (group_of_disks(&pid) == home).then_some(()));
    let has_cpu_group = || cpu_group(pid.as_u64().unwrap()).to_string_lossy().contains("taut.vm.heavy");
    assert!(has_cpu_group() && !Path::new(&own).exists());
    taut.ok(["vm", "set", "heavy", "--cpu-shares", "normal"]);
    eventually("only its limits are left", || (!has_cpu_group()).then_some(()));
    let file = taut.file("none.toml", "kind = \"micro\"\nmemory = \"64MiB\"\n");
    taut.ok(["vm", "create", "-f", file.to_str().unwrap(), "--name", "none"]);
    assert!(taut.refused(["vm", "set", "none", "--disk-shares", "high"]).contains("has no disk"));
}
