//! Deaths beside a QEMU guest: connections survive the fabric, and a killed QEMU affects no other
//! VM.

use taut_tests::{Netns, Taut, any_image, eventually, kill_9};

use crate::direct;

fn agent_carrier_changes(taut: &Taut, vm: &str) -> i64 {
    let link = taut.json(["vm", "addresses", vm]);
    let nic = link
        .as_array()
        .unwrap()
        .iter()
        .find(|i| i["mac"].as_str().is_some_and(|m| m.starts_with("02:")))
        .unwrap()
        .clone();
    nic["carrier_changes"].as_i64().unwrap_or_else(|| panic!("{link}"))
}

#[test]
fn a_killed_fabric_is_not_seen_by_the_guest() {
    survives_the_fabric("rings = { packed = false }");
}

/// The positions of packed rings are known to their two ends only.
#[test]
fn a_killed_fabric_is_not_seen_by_a_guest_with_packed_rings() {
    survives_the_fabric("rings = { packed = true }");
}

fn survives_the_fabric(rings: &str) {
    let taut = Taut::start().with_lan();
    taut.boot("g", &direct(&any_image(), &format!("ip = \"10.72.0.1/24\"\n{rings}")));
    let a = Netns::attach(&taut, "a", "lan", "10.72.0.9");
    a.reaches("10.72.0.1", 3);
    let before = agent_carrier_changes(&taut, "g");
    let bench = taut
        .command()
        .args(["bench", "rr", &format!("netns/{}", a.name), "g", "--duration", "5"])
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    for _ in 0..3 {
        let fabric = taut.fabric_pid();
        kill_9(fabric);
        eventually("another fabric runs", || {
            let pid = taut.json(["daemon", "show"])["fabric_pid"].as_i64().unwrap_or(0);
            (pid != 0 && pid != i64::from(fabric)).then_some(())
        });
        a.reaches("10.72.0.1", 1);
    }
    assert!(bench.wait_with_output().unwrap().status.success(), "the connection survived");
    assert_eq!(agent_carrier_changes(&taut, "g"), before, "no carrier change");
}

#[test]
fn a_killed_qemu_is_reported_and_can_be_started_again() {
    let taut = Taut::start().with_lan();
    taut.boot("g", &direct(&any_image(), "ip = \"10.72.0.1/24\""));
    let pid = taut.json(["vm", "show", "g"])["status"]["pid"].as_i64().unwrap();
    kill_9(i32::try_from(pid).unwrap());
    eventually("the VM is seen failed", || {
        (taut.json(["vm", "show", "g"])["status"]["phase"] == "failed").then_some(())
    });
    taut.ok(["vm", "start", "--wait", "g"]);
}

#[test]
fn traffic_of_a_running_guest_returns_after_daemon_and_fabric_were_killed() {
    let mut taut = Taut::start().with_lan();
    taut.boot("g", &direct(&any_image(), "ip = \"10.72.0.1/24\""));
    let a = Netns::attach(&taut, "a", "lan", "10.72.0.9");
    a.reaches("10.72.0.1", 1);
    let fabric = taut.fabric_pid();
    taut.kill_daemon();
    kill_9(fabric);
    taut.restart_daemon();
    eventually("traffic is back", || (a.pings("10.72.0.1", 1) == 1).then_some(()));
}
