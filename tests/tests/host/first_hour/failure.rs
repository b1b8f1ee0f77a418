//! The reason of a failed VM.

use std::process::Command;

use serde_json::Value;
use taut_tests::{Taut, alive, eventually, kill_9};

fn status(taut: &Taut, vm: &str) -> Value {
    taut.json(["vm", "show", vm])["status"].clone()
}

fn pid(taut: &Taut, vm: &str) -> i32 {
    let pid = eventually("the VM runs", || {
        let status = status(taut, vm);
        if status["phase"] == "running" { status["pid"].as_i64() } else { None }
    });
    i32::try_from(pid).expect("process numbers are small")
}

fn failure(taut: &Taut, vm: &str) -> String {
    eventually("the VM has failed", || {
        let status = status(taut, vm);
        let reason = status["reason"].as_str().map(str::to_owned);
        if status["phase"] == "failed" { reason } else { None }
    })
}

/// Creates a VM with this disk and starts it.
fn start(taut: &Taut, name: &str) {
    let text =
        "memory = \"64MiB\"\n[disk]\npath = \"d.qcow2\"\nformat = \"qcow2\"\n[[nic]]\nportgroup = \"lan\"\n";
    let file = taut.file("d.toml", text);
    taut.ok(["vm", "create", "-f", file.to_str().unwrap(), "--name", name, "--start"]);
}

#[test]
fn a_locked_disk_and_a_killed_qemu_are_told_as_such() {
    let mut taut = Taut::start().with_lan();
    let disk = taut.dir().join("d.qcow2");
    let image = Command::new("qemu-img").args(["create", "-q", "-f", "qcow2"]).arg(&disk).arg("64M").status();
    assert!(image.expect("qemu-img can be run").success());
    start(&taut, "holder");
    pid(&taut, "holder");
    start(&taut, "second");
    let reason = failure(&taut, "second");
    let first = reason.lines().next().unwrap();
    let wanted = format!("its disk {} is in use by VM `holder`; its process ", disk.display());
    assert!(first.starts_with(&wanted), "{reason}");
    assert!(reason.contains("Failed to get \"write\" lock"), "{reason}");
    assert!(!reason.contains("waiting for connection"), "{reason}");

    // The next daemon adopts QEMU and is not its parent.
    taut.kill_daemon();
    taut.restart_daemon();
    let killed = pid(&taut, "holder");
    kill_9(killed);
    let reason = failure(&taut, "holder");
    // Before Linux 6.15 only the parent learns the exit status.
    let told = ["ended with signal: 9 (SIGKILL)", "it was killed or crashed"];
    assert!(reason.starts_with(&format!("its process {killed} ended")), "{reason}");
    assert!(told.iter().any(|told| reason.contains(told)), "{reason}");
    assert!(!reason.contains("waiting for connection"), "{reason}");

    taut.ok(["vm", "start", "holder"]);
    let killed = pid(&taut, "holder");
    taut.kill_daemon();
    kill_9(killed);
    eventually("QEMU has ended", || (!alive(killed)).then_some(()));
    taut.restart_daemon();
    let reason = failure(&taut, "holder");
    assert!(reason.starts_with(&format!("its process {killed} ended while the daemon was away")), "{reason}");
    assert!(reason.contains("it was killed or crashed"), "{reason}");
}
