//! Affinity of vCPUs without exclusive pCPUs, and shares of latency-sensitive VMs.

use taut_tests::{Taut, eventually};

use super::scope::Scope;
use super::{classes, granted, micro, set, start};

/// Returns the pCPUs on which the VM's only vCPU may run.
fn allowed(taut: &Taut, vm: &str) -> String {
    let pid = taut.json(["vm", "show", vm])["status"]["pid"].as_u64().unwrap();
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let vcpu = tasks
        .map(|task| task.path())
        .find(|task| std::fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm == "vcpu\n"));
    let status = std::fs::read_to_string(vcpu.unwrap().join("status")).unwrap();
    status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:\t")).unwrap().to_owned()
}

fn runs_on(taut: &Taut, vm: &str, cpus: &str) {
    eventually(&format!("{vm} runs on {cpus}"), || (allowed(taut, vm) == cpus).then_some(()));
}

fn bind(taut: &Taut, vm: &str, cpus: &str) {
    taut.ok(["vm", "set", vm, "--cpu-affinity", cpus]);
}

#[test]
fn shared_vcpus_run_on_the_pcpus_of_their_affinity() {
    let Some(scope) = Scope::enter() else { return };
    let before = scope.snapshot();
    let mut taut = start(&scope);
    let explains = |taut: &Taut, words: &str| {
        let said = taut.ok(["vm", "explain", "m1"]);
        assert!(said.contains(words), "`{words}` is not in: {said}");
    };
    // Without a reservation the VM gets no exclusive pCPU.
    taut.boot("m1", &micro("10.72.0.1").replace("[cpu]\nreservation = \"full\"\n", ""));
    taut.boot("m2", &micro("10.72.0.2"));
    let everywhere = allowed(&taut, "m1");
    bind(&taut, "m1", "1");
    runs_on(&taut, "m1", "1");
    explains(&taut, "its vCPUs run on pCPUs 1 only");
    bind(&taut, "m1", "0");
    runs_on(&taut, "m1", "0");
    bind(&taut, "m1", "1");
    runs_on(&taut, "m1", "1");

    // Another VM owns that pCPU for a while.
    taut.ok(["vm", "set", "m2", "--cpu-affinity", "1", "--latency-sensitivity", "high"]);
    assert_eq!(granted(&taut, "m2"), 1);
    eventually("m1 has left it", || (!allowed(&taut, "m1").contains('1')).then_some(()));
    explains(&taut, "other VMs own all of them (m2), so its vCPUs run anywhere else; hint: name other pCPUs");
    set(&taut, "m2", "normal");
    runs_on(&taut, "m1", "1");
    runs_on(&taut, "m2", "1");
    bind(&taut, "m2", "any");
    runs_on(&taut, "m2", &everywhere);

    // The next daemon knows the vCPU's former affinity.
    taut.kill_daemon();
    taut.restart_daemon();
    runs_on(&taut, "m1", "1");
    taut.ok(["host", "restore"]);
    runs_on(&taut, "m1", &everywhere);
    explains(&taut, "its vCPUs were let go by `taut host restore`");
    bind(&taut, "m1", "0-1");
    bind(&taut, "m1", "1");
    runs_on(&taut, "m1", "1");
    bind(&taut, "m1", "any");
    runs_on(&taut, "m1", &everywhere);
    // As long as they run, the ledger has their control groups with the limits of their processes.
    for vm in ["m1", "m2"] {
        taut.ok(["vm", "stop", vm]);
    }
    eventually("nothing is left in the ledger", || {
        (!taut.dir().join("state/host-changes.json").exists()).then_some(())
    });
    assert_eq!(scope.snapshot(), before);
}

#[test]
fn shares_of_a_latency_sensitive_vm_keep_its_threads_in_real_time() {
    let Some(scope) = Scope::enter() else { return };
    let taut = start(&scope);
    taut.boot("m1", &micro("10.72.0.1"));
    let pid = taut.json(["vm", "show", "m1"])["status"]["pid"].as_u64().unwrap();
    let group = || taut_tests::cpu_group(pid).to_string_lossy().contains("taut.vm.m1");
    let first = |what: &str| eventually(what, || classes(pid).contains(&1).then_some(()));
    set(&taut, "m1", "high");
    granted(&taut, "m1");
    first("its other threads go first");
    for _ in 0..3 {
        taut.ok(["vm", "set", "m1", "--cpu-shares", "high"]);
        eventually("it has a group", || group().then_some(()));
        first("they still do, in the group");
        taut.ok(["vm", "set", "m1", "--cpu-shares", "normal"]);
        eventually("it has none", || (!group()).then_some(()));
        first("they still do, at home");
    }
    let events = taut.ok(["events"]);
    assert!(!events.contains("resources.problem") && !events.contains("latency.problem"), "{events}");
    set(&taut, "m1", "normal");
    eventually("they take turns", || classes(pid).iter().all(|class| *class == 0).then_some(()));
}
