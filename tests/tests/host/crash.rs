//! Deaths of daemon, fabric and VMs, and what survives them.

use std::process::Stdio;

use taut_tests::{Netns, Taut, alive, eventually, kill_9};

use crate::micro::micro;

#[test]
fn no_packet_is_lost_when_the_daemon_is_killed_and_the_next_one_adopts_all() {
    let mut taut = Taut::start().with_lan();
    taut.boot("m1", &micro("10.71.0.1"));
    let a = Netns::attach(&taut, "a", "lan", "10.71.0.9");
    let pid_of = |taut: &Taut| taut.json(["vm", "show", "m1"])["status"]["pid"].as_i64().unwrap();
    let (pid, fabric) = (pid_of(&taut), taut.fabric_pid());

    let pings = a.pinging("10.71.0.1", 100, "0.02");
    taut.kill_daemon();
    pings.all_come_back();

    taut.restart_daemon();
    assert_eq!(pid_of(&taut), pid, "the same process, adopted");
    assert_eq!(taut.fabric_pid(), fabric, "the same fabric, adopted");
    eventually("the VM is seen running", || {
        (taut.json(["vm", "show", "m1"])["status"]["phase"] == "running").then_some(())
    });
    a.reaches("10.71.0.1", 5);
}

#[test]
fn a_killed_fabric_keeps_connections() {
    let taut = Taut::start().with_lan();
    let a = Netns::attach(&taut, "a", "lan", "10.71.0.1");
    let b = Netns::attach(&taut, "b", "lan", "10.71.0.2");
    taut.boot("m1", &micro("10.71.0.3"));
    let _server = b.iperf3_server();
    let client = a
        .command("iperf3")
        .args(["-c", "10.71.0.2", "-t", "3", "-J"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let before = taut.fabric_pid();
    for _ in 0..3 {
        let fabric = taut.fabric_pid();
        kill_9(fabric);
        eventually("another fabric runs", || {
            let pid = taut.json(["daemon", "show"])["fabric_pid"].as_i64().unwrap_or(0);
            (pid != 0 && pid != i64::from(fabric)).then_some(())
        });
        eventually("a microguest's session goes on", || (a.pings("10.71.0.3", 1) == 1).then_some(()));
    }
    assert!(!alive(before));
    let report = client.wait_with_output().unwrap();
    assert!(report.status.success(), "the connection survived: {}", String::from_utf8_lossy(&report.stdout));
}

#[test]
fn an_upgrade_of_the_fabric_loses_no_packet_and_no_link() {
    let mut taut = Taut::start().with_lan();
    taut.boot("m1", &micro("10.71.0.1"));
    let a = Netns::attach(&taut, "a", "lan", "10.71.0.9");
    eventually("traffic passes", || (a.pings("10.71.0.1", 1) == 1).then_some(()));
    let pings = a.pinging("10.71.0.1", 300, "0.005");
    for _ in 0..3 {
        let before = taut.fabric_pid();
        let upgraded = taut.json(["daemon", "upgrade-fabric"]);
        assert_eq!(upgraded["old_pid"], i64::from(before));
        assert_eq!(upgraded["ports"], 2, "{upgraded}");
        assert_eq!(upgraded["new_pid"], i64::from(taut.fabric_pid()));
        eventually("the old one has ended", || (!alive(before)).then_some(()));
    }
    pings.all_come_back();
    let events = taut.json(["events"]);
    let of_kind =
        |kind: &str| events.as_array().unwrap().iter().filter(|event| event["kind"] == kind).count();
    assert_eq!(
        (of_kind("fabric.upgraded"), of_kind("port.down"), of_kind("fabric.died")),
        (3, 0, 0),
        "{events}"
    );

    let fabric = taut.fabric_pid();
    taut.kill_daemon();
    taut.restart_daemon();
    assert_eq!(taut.fabric_pid(), fabric, "the one that took over, adopted");
    kill_9(fabric);
    eventually("traffic is back", || (a.pings("10.71.0.1", 1) == 1).then_some(()));
}

#[test]
fn traffic_returns_after_daemon_and_fabric_were_killed() {
    let mut taut = Taut::start().with_lan();
    taut.boot("m1", &micro("10.71.0.1"));
    let a = Netns::attach(&taut, "a", "lan", "10.71.0.9");
    a.reaches("10.71.0.1", 1);
    let fabric = taut.fabric_pid();
    taut.kill_daemon();
    kill_9(fabric);
    taut.restart_daemon();
    eventually("traffic is back", || (a.pings("10.71.0.1", 1) == 1).then_some(()));
}

#[test]
fn the_kvm_probe_ends_with_its_daemon() {
    let mut taut = Taut::start();
    taut.kill_daemon();
    eventually("it is gone with its daemon", || taut.probes().is_empty().then_some(()));
    taut.restart_daemon();
    // `shut_down` checks for probes as soon as the daemon has ended.
    taut.shut_down();
    taut.restart_daemon();
}

#[test]
fn a_killed_vm_causes_an_event_and_disturbs_no_other() {
    let taut = Taut::start().with_lan();
    taut.boot("m1", &micro("10.71.0.1"));
    taut.boot("m2", &micro("10.71.0.2"));
    let a = Netns::attach(&taut, "a", "lan", "10.71.0.9");
    let pid = taut.json(["vm", "show", "m1"])["status"]["pid"].as_i64().unwrap();
    kill_9(i32::try_from(pid).unwrap());
    a.reaches("10.71.0.2", 10);
    let vm = eventually("the VM is seen failed", || {
        let vm = taut.json(["vm", "show", "m1"]);
        (vm["status"]["phase"] == "failed").then_some(vm)
    });
    assert!(vm["status"]["reason"].is_string(), "{vm}");
    let events = taut.json(["events"]);
    assert!(
        events.as_array().unwrap().iter().any(|e| e["subject"] == "vm/m1" && e["level"] != "info"),
        "{events}"
    );
    taut.ok(["vm", "start", "--wait", "m1"]);
    a.reaches("10.71.0.1", 3);
}

#[test]
fn interfaces_stay_when_the_fabric_dies_under_a_daemon_that_was_started_anew() {
    let mut taut = Taut::start().with_lan();
    let a = Netns::attach(&taut, "a", "lan", "10.71.0.1");
    let b = Netns::attach(&taut, "b", "lan", "10.71.0.2");
    taut.kill_daemon();
    taut.restart_daemon();
    for name in [&a.name, &b.name] {
        eventually("the daemon knows the port", || {
            (taut.json(["netns", "show", name])["status"]["attached"] == true).then_some(())
        });
    }
    let fabric = taut.fabric_pid();
    kill_9(fabric);
    eventually("another fabric serves", || (taut.fabric_pid() != fabric).then_some(()));
    eventually("traffic is back", || (a.pings(&b.ip, 1) == 1).then_some(()));
    assert_eq!(taut.ok(["events"]).matches("netns.attached").count(), 2, "none was made anew");
}
