//! Walls around the fabric and microguests (decision 13: nothing that parses a stranger's bytes is
//! root).

use std::path::Path;
use std::process::Stdio;

use taut_tests::{Taut, WallsSeen, alive, eventually, kill_9, missing_walls};

use crate::micro::micro;

fn pid(taut: &Taut, vm: &str) -> i32 {
    i32::try_from(taut.json(["vm", "show", vm])["status"]["pid"].as_i64().unwrap()).unwrap()
}

#[test]
fn the_fabric_and_each_vm_have_users_of_their_own_and_all_walls() {
    let taut = Taut::start().with_lan();
    taut.boot("m1", &micro("10.71.1.1"));
    taut.boot("m2", &micro("10.71.1.2"));
    let fabric = WallsSeen::of(taut.fabric_pid()).assert_complete();
    let console = eventually("the console process is recorded", || {
        let record = std::fs::read_to_string(taut.dir().join("run/console.pid")).ok()?;
        let record: serde_json::Value = serde_json::from_str(record.trim()).ok()?;
        i32::try_from(record["pid"].as_i64()?).ok()
    });
    assert_ne!(WallsSeen::of(console).assert_complete(), fabric);
    let users = ["m1", "m2"].map(|vm| WallsSeen::of(pid(&taut, vm)).assert_complete());
    assert!(users[0] != users[1] && !users.contains(&fabric), "{users:?} {fabric}");
    let status = taut.json(["vm", "show", "m1"])["status"].clone();
    assert_eq!(status["confinement"]["user"], users[0]);
    assert_eq!(missing_walls(&status), [] as [&str; 0], "{status}");
    assert!(taut.ok(["vm", "show", "m1"]).contains(&format!("user {}", users[0])));
    // Nothing of the host is in their file systems but the folders of the system.
    for pid in [pid(&taut, "m1"), taut.fabric_pid()] {
        let root = format!("/proc/{pid}/root");
        for absent in ["etc", "root", "home", "var", "run", "sys", "dev/kvm", "dev/sda"] {
            assert!(!Path::new(&root).join(absent).exists(), "{root} has {absent}");
        }
        assert!(Path::new(&root).join("usr/lib").exists(), "{root}");
    }
}

#[test]
fn the_next_fabric_has_the_walls_of_the_first_and_vms_keep_their_users() {
    let mut taut = Taut::start().with_lan();
    taut.boot("m1", &micro("10.71.2.1"));
    let user = WallsSeen::of(pid(&taut, "m1")).assert_complete();
    let fabric = taut.fabric_pid();
    kill_9(fabric);
    let next = eventually("another fabric runs", || {
        let pid = taut.json(["daemon", "show"])["fabric_pid"].as_i64()?;
        (pid != i64::from(fabric)).then_some(pid)
    });
    WallsSeen::of(i32::try_from(next).unwrap()).assert_complete();
    taut.kill_daemon();
    taut.restart_daemon();
    assert_eq!(taut.json(["vm", "show", "m1"])["status"]["confinement"]["user"], user);
    taut.boot("m2", &micro("10.71.2.2"));
    assert_ne!(WallsSeen::of(pid(&taut, "m2")).assert_complete(), user);
}

#[test]
fn a_vm_that_is_started_again_is_confined_again() {
    let taut = Taut::start().with_lan();
    taut.boot("m1", &micro("10.71.3.1"));
    let first = pid(&taut, "m1");
    taut.ok(["vm", "stop", "m1"]);
    assert!(!alive(first));
    // Its next process is confined, too.
    taut.ok(["vm", "start", "m1"]);
    eventually("it runs again", || {
        (taut.json(["vm", "show", "m1"])["status"]["phase"] == "running").then_some(())
    });
    WallsSeen::of(pid(&taut, "m1")).assert_complete();
}

/// The daemon is killed at the moment at which a file of a starting VM appears. The fixture fails
/// if a process is left that the next daemon does not know.
#[test]
fn a_daemon_that_is_killed_while_it_starts_a_vm_leaves_no_process_without_a_record() {
    let mut taut = Taut::start().with_lan();
    let file = taut.file("vm.toml", &micro("10.71.4.1"));
    for (number, appears) in ["pid", "", "pid", "", "pid"].into_iter().enumerate() {
        let name = format!("m{number}");
        taut.ok(["vm", "create", "-f", file.to_str().unwrap(), "--name", &name]);
        let mut started = taut.command();
        started.args(["vm", "start", &name]).stdout(Stdio::null()).stderr(Stdio::null());
        let mut started = started.spawn().unwrap();
        let awaited = taut.dir().join("run/vms").join(&name).join(appears);
        while !awaited.exists() {
            std::thread::yield_now();
        }
        taut.kill_daemon();
        started.wait().unwrap();
        taut.restart_daemon();
        eventually("it runs", || {
            let status = taut.json(["vm", "show", &name])["status"].clone();
            assert_ne!(status["phase"], "failed", "{status}");
            (status["phase"] == "running").then_some(())
        });
        taut.ok(["vm", "delete", "--force", &name]);
    }
}
