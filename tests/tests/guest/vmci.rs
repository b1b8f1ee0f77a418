//! A guest's VMCI device works, and survives deaths of daemon and fabric.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use serde_json::Value;
use taut_tests::{Taut, any_image, eventually, kill_9};

use crate::direct;

/// Returns the status of the VM's device.
fn device(taut: &Taut, vm: &str) -> Value {
    taut.json(["vm", "show", vm])["status"]["vmci"].clone()
}

fn is_up(taut: &Taut, vm: &str) {
    eventually("the guest's driver runs its rings", || (device(taut, vm)["link"] == "up").then_some(()));
}

fn pid(taut: &Taut, vm: &str) -> Value {
    taut.json(["vm", "show", vm])["status"]["pid"].clone()
}

/// Asserts that a program of the host reads nothing when it asks for a port without a listener.
fn nobody_listens(taut: &Taut, vm: &str) {
    let socket = PathBuf::from(device(taut, vm)["socket"].as_str().unwrap());
    assert_eq!(socket.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.write_all(b"CONNECT 4242\n").unwrap();
    let mut answer = String::new();
    // The connection ends or is reset; there is no OK.
    let _ = stream.read_to_string(&mut answer);
    assert_eq!(answer, "");
}

fn events(taut: &Taut, kind: &str) -> usize {
    let all = taut.json(["events"]);
    all.as_array().unwrap().iter().filter(|event| event["kind"] == kind).count()
}

#[test]
fn a_vmci_device_survives_fabric_and_daemon() {
    let mut taut = Taut::start().with_lan();
    taut.boot("g", &format!("{}[vmci]\n", direct(&any_image(), "ip = \"10.72.0.1/24\"")));
    is_up(&taut, "g");
    let qemu = pid(&taut, "g");
    nobody_listens(&taut, "g");
    assert_eq!(device(&taut, "g")["cid"], 3);

    taut.ok(["vm", "set", "g", "--vmci-domains", "a,b"]);
    let listed = taut.ok(["vmci", "list"]);
    assert!(listed.contains("a,b"), "{listed}");

    taut.ok(["daemon", "upgrade-fabric"]);
    is_up(&taut, "g");
    nobody_listens(&taut, "g");

    let fabric = taut.fabric_pid();
    kill_9(fabric);
    eventually("another fabric runs", || (taut.fabric_pid() != fabric).then_some(()));
    is_up(&taut, "g");
    nobody_listens(&taut, "g");
    assert_eq!(events(&taut, "vmci.replugged"), 0);

    let fabric = taut.fabric_pid();
    taut.kill_daemon();
    kill_9(fabric);
    taut.restart_daemon();
    eventually("the device is plugged in again", || (events(&taut, "vmci.replugged") == 1).then_some(()));
    is_up(&taut, "g");
    nobody_listens(&taut, "g");
    assert_eq!(pid(&taut, "g"), qemu);
}

#[test]
fn a_vmci_device_appears_at_the_next_start_and_is_cut_off_at_once() {
    let taut = Taut::start().with_lan();
    taut.boot("g", &direct(&any_image(), "ip = \"10.72.0.1/24\""));
    let said = taut.ok(["vm", "set", "g", "--vmci"]);
    assert!(said.contains("taut vm stop g"), "{said}");
    assert!(device(&taut, "g")["reason"].as_str().unwrap().contains("next start"));
    taut.ok(["vm", "stop", "--force", "g"]);
    taut.ok(["vm", "start", "--wait", "g"]);
    is_up(&taut, "g");
    let socket = PathBuf::from(device(&taut, "g")["socket"].as_str().unwrap());
    taut.ok(["vm", "set", "g", "--vmci", "off"]);
    assert_eq!(device(&taut, "g"), Value::Null);
    eventually("the host has no way to it", || (!socket.exists()).then_some(()));
    // The guest still has the device, so enabling it again plugs it in again.
    taut.ok(["vm", "set", "g", "--vmci"]);
    is_up(&taut, "g");
    nobody_listens(&taut, "g");

    // The device of a running guest is replaced by one with another context ID.
    let replugged = events(&taut, "vmci.replugged");
    taut.ok(["vm", "set", "g", "--vmci-cid", "77"]);
    eventually("it is plugged in again", || (events(&taut, "vmci.replugged") > replugged).then_some(()));
    is_up(&taut, "g");
    assert_eq!(device(&taut, "g")["cid"], 77);
    nobody_listens(&taut, "g");
}
