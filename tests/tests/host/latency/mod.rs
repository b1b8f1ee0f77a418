//! Latency sensitivity on this host (PL4, PL5): a microguest's vCPU owns a pCPU, and the setting is
//! switched under traffic, whatever dies.

mod affinity;
pub(crate) mod scope;

use std::process::{Child, Stdio};

use serde_json::Value;
use taut_tests::{Background, Taut, eventually};

use scope::Scope;

/// Returns the file of a microguest that can be latency-sensitive.
fn micro(ip: &str) -> String {
    format!(
        "kind = \"micro\"\nmemory = \"64MiB\"\nmemory_reservation = \"full\"\n[cpu]\nreservation = \"full\"\n\
         [[nic]]\nportgroup = \"lan\"\nip = \"{ip}/24\"\n"
    )
}

/// Starts a daemon that makes room for exclusive pCPUs in this cpuset only.
pub(crate) fn start_daemon(scope: &Scope) -> Taut {
    let dir: &'static str = Box::leak(scope.dir().to_str().unwrap().to_owned().into_boxed_str());
    let args: &'static [&'static str] = Box::leak(Box::new(["--cpuset", dir]));
    Taut::start_with(args)
}

fn start(scope: &Scope) -> Taut {
    start_daemon(scope).with_lan()
}

fn set(taut: &Taut, vm: &str, level: &str) -> String {
    taut.ok(["vm", "set", vm, "--latency-sensitivity", level])
}

fn latency(taut: &Taut, vm: &str) -> Value {
    taut.json(["vm", "show", vm])["status"]["latency"].clone()
}

/// Waits until the VM's only vCPU owns a pCPU, and returns that pCPU.
fn granted(taut: &Taut, vm: &str) -> u64 {
    eventually("it is granted", || {
        let status = latency(taut, vm);
        (status["state"] == "granted").then(|| status["cpus"][0].as_u64().unwrap())
    })
}

/// Asserts that only the VM's vCPU may run on the pCPU, and that it may run nowhere else.
fn is_alone(scope: &Scope, taut: &Taut, vm: &str, cpu: u64) {
    let pid = taut.json(["vm", "show", vm])["status"]["pid"].as_u64().unwrap();
    let comm =
        |tid: &u32| std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm")).unwrap_or_default();
    let there = scope.may_run_on(cpu);
    assert_eq!(there.iter().map(comm).collect::<Vec<_>>(), ["vcpu\n"], "threads {there:?} on pCPU {cpu}");
    let status = std::fs::read_to_string(format!("/proc/{}/status", there[0])).unwrap();
    assert!(status.contains(&format!("Cpus_allowed_list:\t{cpu}\n")), "{status}");
}

fn classes_of_fabric(taut: &Taut) -> Vec<u32> {
    classes(taut.json(["daemon", "show"])["fabric_pid"].as_u64().unwrap())
}

/// Returns the scheduling classes of a process's threads: 0 is ordinary, 1 is real-time
/// (`SCHED_FIFO`).
fn classes(pid: u64) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let class = |task: std::io::Result<std::fs::DirEntry>| {
        let stat = std::fs::read_to_string(task.ok()?.path().join("stat")).ok()?;
        stat.rsplit_once(')')?.1.split_whitespace().nth(38)?.parse().ok()
    };
    let mut classes: Vec<u32> = tasks.filter_map(class).collect();
    classes.dedup();
    classes
}

/// Starts requests and answers over one connection, and waits until they flow.
fn traffic(taut: &Taut, seconds: u32) -> Child {
    let sent = || {
        let ports = taut.json(["port", "list"]);
        ports
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|port| port["counters"]["tx_frames"].as_u64())
            .sum::<u64>()
    };
    let before = sent();
    let mut command = taut.command();
    command.args(["bench", "rr", "m1", "m2", "--duration", &seconds.to_string()]);
    let bench = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    eventually("there is traffic", || (sent() > before + 100).then_some(()));
    bench
}

fn went_well(traffic: Child) {
    let output = traffic.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn exclusive_pcpus_are_granted_and_given_back_every_time() {
    let Some(scope) = Scope::enter() else { return };
    let other = scope.make_other("other");
    let mut taut = start(&scope);
    let sleeper = Background::start(std::process::Command::new("sleep").arg("1000"));
    taut.boot("m1", &micro("10.72.0.1"));
    // The second VM reserves no CPU, so the first one can own a pCPU.
    taut.boot("m2", &micro("10.72.0.2").replace("[cpu]\nreservation = \"full\"\n", ""));
    let before = scope.snapshot();
    let is_as_before = |what: &str| {
        eventually(what, || (scope.snapshot() == before).then_some(()));
    };

    let running = traffic(&taut, 4);
    for _ in 0..10 {
        let said = set(&taut, "m1", "high");
        assert!(said.contains(", exclusive pCPUs ") && !said.contains("not yet in force"), "{said}");
        let cpu = granted(&taut, "m1");
        is_alone(&scope, &taut, "m1", cpu);
        assert_ne!(scope.snapshot(), before);
        eventually("the fabric goes first", || (classes_of_fabric(&taut) == [1]).then_some(()));
        let others = std::fs::read_to_string(other.join("cpuset.cpus")).unwrap();
        assert!(!others.contains(&cpu.to_string()), "{others}");
        let nic = taut.json(["vm", "show", "m1"])["status"]["nics"][0].clone();
        assert_eq!((&nic["coalescing"], &nic["lro"]), (&"disabled".into(), &false.into()));
        set(&taut, "m1", "normal");
        is_as_before("the host is as before");
        eventually("the fabric takes turns", || (classes_of_fabric(&taut) == [0]).then_some(()));
    }
    went_well(running);

    // The next daemon adopts the grant, and takes it back when it is no longer wanted.
    set(&taut, "m1", "high");
    let cpu = granted(&taut, "m1");
    let running = traffic(&taut, 3);
    taut.kill_daemon();
    is_alone_without(&scope, cpu);
    taut.restart_daemon();
    assert_eq!(granted(&taut, "m1"), cpu);
    is_alone(&scope, &taut, "m1", cpu);
    set(&taut, "m1", "normal");
    is_as_before("the next daemon puts all back");
    went_well(running);

    // The daemon is killed at various moments of granting and taking back.
    for moment in 0..8 {
        set(&taut, "m1", "high");
        std::thread::sleep(std::time::Duration::from_millis(3 * moment));
        taut.kill_daemon();
        taut.restart_daemon();
        is_alone(&scope, &taut, "m1", granted(&taut, "m1"));
        set(&taut, "m1", "normal");
        std::thread::sleep(std::time::Duration::from_millis(3 * moment));
        taut.kill_daemon();
        taut.restart_daemon();
        is_as_before("it is put back by the next daemon");
    }

    // `taut host restore` takes the pCPU back, and so does stopping the VM.
    set(&taut, "m1", "high");
    granted(&taut, "m1");
    taut.ok(["host", "restore"]);
    is_as_before("put back by order");
    assert_eq!(classes_of_fabric(&taut), [0]);
    assert!(latency(&taut, "m1")["missing"][0].as_str().unwrap().contains("taut host restore"));
    set(&taut, "m1", "high");
    granted(&taut, "m1");
    let explained = taut.ok(["vm", "explain", "m1"]);
    assert!(
        explained.contains("vCPU 0 owns pCPU") && explained.contains("LS-7 no coalescing"),
        "{explained}"
    );
    taut.ok(["vm", "stop", "m1"]);
    is_as_before("its pCPU is free when it has stopped");
    taut.ok(["vm", "start", "--wait", "m1"]);
    granted(&taut, "m1");
    drop(taut);
    is_as_before("nothing is left by a shutdown with everything");
    drop(sleeper);
}

fn is_alone_without(scope: &Scope, cpu: u64) {
    assert_eq!(scope.may_run_on(cpu).len(), 1, "without a daemon, too");
}

#[test]
fn impossible_reservations_are_refused_with_amounts_and_change_nothing() {
    let Some(scope) = Scope::enter() else { return };
    let taut = start(&scope);
    taut.boot("m1", &micro("10.72.0.1"));
    let before = scope.snapshot();
    let cpus = taut.json(["host", "show"])["cpus"].as_array().unwrap().len();
    let refuses = |args: &[&str], words: &[&str]| {
        let said = taut.refused([&["vm", "set"], args].concat());
        for word in words {
            assert!(said.contains(word), "`{word}` is not in: {said}");
        }
    };
    let high = "--latency-sensitivity=high";
    refuses(&["m1", high, "--memory-reservation=32MiB"], &["32MiB of 64MiB", "32MiB are missing"]);
    // QEMU VMs with more vCPUs than the host can spare are refused before they need a kernel.
    let file = |name: &str, vcpus: usize, more: &str| {
        let text = format!(
            "memory = \"64MiB\"\nvcpus = {vcpus}\n{more}[cpu]\nreservation = \"full\"\n[boot]\nkernel = \"/proc/version\"\n"
        );
        taut.file(name, &text)
    };
    let create = |name: &str, file: &std::path::Path| {
        taut.ok([
            "vm".as_ref(),
            "create".as_ref(),
            "--name".as_ref(),
            name.as_ref(),
            "-f".as_ref(),
            file.as_os_str(),
        ]);
        taut.refused(["vm", "start", name])
    };
    let all = "memory_reservation = \"full\"\nlatency_sensitivity = \"high\"\n";
    let said = create("last", &file("last.toml", cpus, all));
    assert!(said.contains(&format!("has {cpus} and one always stays for the host")), "{said}");
    set(&taut, "m1", "high");
    granted(&taut, "m1");
    let said = create("over", &file("over.toml", cpus - 1, all));
    assert!(said.contains("over-committed"), "{said}");
    // The refused VMs left nothing, and the granted VM keeps its pCPU.
    granted(&taut, "m1");
    set(&taut, "m1", "normal");
    eventually("the host is as before", || (scope.snapshot() == before).then_some(()));
}
