//! The reason of a failed VM.

use std::process::Command;
use std::time::{Duration, Instant};

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

/// Returns the arguments that create a VM with this disk and start it.
fn create<'a>(file: &'a str, name: &'a str) -> [&'a str; 7] {
    ["vm", "create", "-f", file, "--name", name, "--start"]
}

#[test]
fn a_locked_disk_and_a_killed_qemu_are_told_as_such() {
    let mut taut = Taut::start().with_lan();
    let disk = taut.dir().join("d.qcow2");
    let image = Command::new("qemu-img").args(["create", "-q", "-f", "qcow2"]).arg(&disk).arg("64M").status();
    assert!(image.expect("qemu-img can be run").success());
    let text =
        "memory = \"64MiB\"\n[disk]\npath = \"d.qcow2\"\nformat = \"qcow2\"\n[[nic]]\nportgroup = \"lan\"\n";
    let file = taut.file("d.toml", text);
    let file = file.to_str().unwrap();
    let said = taut.ok(create(file, "holder"));
    let running = format!("VM holder: running, process {}\n", pid(&taut, "holder"));
    assert!(said.ends_with(&running), "a start waits until the VM runs: {said}");

    // Every way to start the other one fails with the reason, and at once.
    let in_use = format!("VM second has failed: its disk {} is in use by VM `holder`; ", disk.display());
    let begun = Instant::now();
    let created = taut.run(create(file, "second"));
    assert!(!created.success && created.stdout.starts_with("created second: "), "{created:?}");
    assert!(created.stderr.contains(&in_use), "{created:?}");
    assert!(
        created.stderr.contains("hint: ") && created.stderr.contains("`taut vm start second`"),
        "{created:?}"
    );
    for start in [&["vm", "start", "second"][..], &["vm", "start", "second", "--wait"]] {
        let said = taut.refused(start);
        assert!(said.contains(&in_use) && !said.contains("reset by peer"), "{said}");
    }
    assert!(begun.elapsed() < Duration::from_secs(60), "took {:?}", begun.elapsed());
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
    let told = ["ended with signal: 9 (SIGKILL)", "its exit status is not known"];
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
    assert!(reason.contains("its exit status is not known"), "{reason}");
}
