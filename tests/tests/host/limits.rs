//! Limits of VMs' processes (SE17): a VM that goes over its memory, processes or descriptors
//! affects nobody else, and an event names the limit.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::Value;
use taut_tests::hostile::Neighbours;
use taut_tests::{Prerequisite, Taut, eventually, require};

use crate::micro::micro;

/// A program in QEMU's place. The name of its VM says which limit it goes over.
const STAND_IN: &str = r#"#!/bin/bash
if [ "$1" = --version ]; then echo "QEMU emulator version 10.0.2"; exit; fi
case $TAUT_RUN_DIR in
*/memory) exec tail /dev/zero ;;
*/processes) (for _ in {1..400}; do sleep 1000 & done) ; exec sleep 1000 ;;
*/bomb) bomb() { bomb | bomb & }; bomb; exec sleep 1000 ;;
*/descriptors) for _ in {1..5000}; do exec {fd}</dev/null || break; done ; exec sleep 1000 ;;
esac
exit 1
"#;

/// Starts a daemon with the stand-in for QEMU and two microguests.
fn start() -> Taut {
    let mut taut = Taut::start().with_lan();
    taut.kill_daemon();
    let folder = taut.dir().join("qemu/bin");
    fs::create_dir_all(&folder).unwrap();
    let program = folder.join("qemu-system-x86_64");
    fs::write(&program, STAND_IN).unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    taut.restart_daemon_with([("PATH", &path)]);
    taut.boot("m1", &micro("10.71.0.1"));
    taut.boot("m2", &micro("10.71.0.2"));
    taut
}

/// Starts a VM whose process is the stand-in.
fn start_stand_in(taut: &Taut, name: &str) {
    fs::File::create(taut.dir().join("disk.img")).unwrap().set_len(1 << 20).unwrap();
    let file = taut.file("vm.toml", "memory = \"64MiB\"\n[disk]\npath = \"disk.img\"\n");
    taut.ok(["vm", "create", "-f", file.to_str().unwrap(), "--name", name]);
    // Its process may end before the command does.
    taut.run(["vm", "start", name]);
}

fn status(taut: &Taut, vm: &str) -> Value {
    taut.json(["vm", "show", vm])["status"].clone()
}

/// Waits for the event that a VM has reached this limit, and returns its message.
fn told(taut: &Taut, vm: &str, kind: &str) -> String {
    eventually(&format!("the event {kind}"), || {
        let events = taut.json(["events"]);
        let of_vm = events.as_array()?.iter().filter(|event| event["subject"] == format!("vm/{vm}"));
        let mut limits =
            of_vm.filter(|event| event["kind"].as_str().is_some_and(|kind| kind.starts_with("limits.")));
        let found = limits.next()?;
        assert_eq!(found["kind"], kind, "{found}");
        found["message"].as_str().map(str::to_owned)
    })
}

/// Fails if a neighbour of the VM, or the fabric, is not as it was.
fn nobody_else_is_affected(taut: &Taut, fabric: i32, neighbours: &[Value]) {
    for (name, before) in ["m1", "m2"].into_iter().zip(neighbours) {
        let now = status(taut, name);
        assert_eq!((&now["phase"], &now["pid"]), (&before["phase"], &before["pid"]), "{now}");
    }
    taut.ok(["bench", "ping", "m1", "m2", "--duration", "1"]);
    assert_eq!(taut.fabric_pid(), fabric);
}

/// Returns the folders of control groups with this name, in each hierarchy.
fn groups(name: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.path().is_dir() && !entry.path().is_symlink() {
                found.extend(entry.file_name().to_string_lossy().starts_with(name).then(|| entry.path()));
                folders.push(entry.path());
            }
        }
    }
    found
}

/// Has a VM go over a limit, and returns the daemon and the message of the event.
fn go_over(vm: &str, kind: &str) -> (Taut, String) {
    let taut = start();
    let fabric = taut.fabric_pid();
    let neighbours = ["m1", "m2"].map(|name| status(&taut, name));
    start_stand_in(&taut, vm);
    let message = told(&taut, vm, kind);
    nobody_else_is_affected(&taut, fabric, &neighbours);
    (taut, message)
}

#[test]
fn a_vm_that_takes_all_memory_is_ended_alone() {
    if !require(Prerequisite::LimitGroups) {
        return;
    }
    let (taut, message) = go_over("memory", "limits.memory");
    // 64 MiB of the guest, 1 for page tables, 32 for the emulated vCPU, 64 for translated code, 256
    // for the program.
    assert!(message.contains("reached its memory limit of 417MiB"), "{message}");
    let reason =
        eventually("the VM has failed", || status(&taut, "memory")["reason"].as_str().map(str::to_owned));
    assert!(reason.contains("SIGKILL"), "{reason}");
    taut.ok(["vm", "delete", "--force", "memory"]);
    eventually("its control groups are gone", || groups("taut.vm.memory.").is_empty().then_some(()));
}

#[test]
fn a_vm_that_starts_processes_without_end_stops_at_its_limit() {
    if !require(Prerequisite::LimitGroups) {
        return;
    }
    let (taut, message) = go_over("processes", "limits.processes");
    assert!(message.contains("81 processes and threads"), "{message}");
    let pid = status(&taut, "processes")["pid"].as_i64().expect("it goes on");
    let count = fs::read_to_string(
        groups("taut.vm.processes.")
            .iter()
            .map(|group| group.join("pids.current"))
            .find(|file| file.exists())
            .expect("a group of processes"),
    )
    .unwrap();
    assert!(count.trim().parse::<u32>().unwrap() <= 81, "{count}");
    taut.ok(["vm", "stop", "--force", "processes"]);
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
    eventually("its control groups are gone", || groups("taut.vm.processes.").is_empty().then_some(()));
}

#[test]
fn a_fork_bomb_in_a_vm_takes_no_frame_from_others() {
    if !require(Prerequisite::LimitGroups) {
        return;
    }
    let taut = start();
    let fabric = taut.fabric_pid();
    let neighbours = Neighbours::start(&taut, "lan");
    start_stand_in(&taut, "bomb");
    told(&taut, "bomb", "limits.processes");
    let mut seen = neighbours.take();
    let more = seen.delays.len() + 1000;
    eventually("the neighbours exchange frames beside it", || {
        let now = neighbours.take();
        seen.delays.extend(now.delays);
        seen.lost += now.lost;
        (seen.delays.len() >= more || seen.lost > 0).then_some(())
    });
    assert_eq!(seen.lost, 0, "of {} frames, longest {:?}", seen.delays.len(), seen.longest());
    assert_eq!(taut.fabric_pid(), fabric);
    taut.ok(["vm", "stop", "--force", "bomb"]);
    eventually("its control groups are gone", || groups("taut.vm.bomb.").is_empty().then_some(()));
}

#[test]
fn a_vm_that_opens_descriptors_without_end_stops_at_its_limit() {
    let (taut, message) = go_over("descriptors", "limits.descriptors");
    assert!(message.contains("of 4096 descriptors are open"), "{message}");
    let pid = status(&taut, "descriptors")["pid"].as_i64().expect("it goes on");
    assert!(fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count() <= 4096);
    taut.ok(["vm", "stop", "--force", "descriptors"]);
}

#[test]
fn limits_are_shown_and_stay_as_long_as_the_process() {
    if !require(Prerequisite::LimitGroups) {
        return;
    }
    let mut taut = Taut::start().with_lan();
    taut.boot("limited", &micro("10.71.0.1"));
    let confinement = |taut: &Taut| {
        let shown = status(taut, "limited")["confinement"].clone();
        (shown["memory"].clone(), shown["processes"].as_u64())
    };
    let before = confinement(&taut);
    assert_eq!(before.1, Some(81));
    let shown = taut.ok(["vm", "show", "limited"]);
    assert!(shown.contains("at most 325MiB of memory, at most 81 processes and threads"), "{shown}");
    let made = groups("taut.vm.limited.");
    assert!(!made.is_empty());
    taut.kill_daemon();
    taut.restart_daemon();
    assert_eq!(confinement(&taut), before);
    // What users set for a VM is put back, its walls are not.
    taut.ok(["host", "restore"]);
    assert_eq!((confinement(&taut), groups("taut.vm.limited.")), (before, made));
    taut.ok(["vm", "stop", "limited"]);
    eventually("its control groups are gone", || groups("taut.vm.limited.").is_empty().then_some(()));
}
