//! Cards of running VMs that move to another port group, and whose link goes down and up.

use serde_json::json;
use taut_tests::{Netns, Taut, eventually};

const FILE: &str =
    "kind = \"micro\"\nmemory = \"64MiB\"\n[[nic]]\nportgroup = \"lan\"\nip = \"10.71.0.5/24\"\n";

#[test]
fn a_card_moves_to_another_port_group_and_back() {
    let taut = Taut::start().with_lan();
    taut.ok(["portgroup", "create", "dmz", "--vswitch", "sw", "--vlan", "7"]);
    taut.boot("m", FILE);
    let lan = Netns::attach(&taut, "lan", "lan", "10.71.0.1");
    let dmz = Netns::attach(&taut, "dmz", "dmz", "10.71.0.2");
    lan.reaches("10.71.0.5", 3);
    assert_eq!(dmz.pings("10.71.0.5", 1), 0);

    taut.ok(["vm", "set", "m", "--portgroup", "dmz"]);
    eventually("the other port group reaches it", || (dmz.pings("10.71.0.5", 3) == 3).then_some(()));
    assert_eq!(lan.pings("10.71.0.5", 1), 0);
    assert_eq!(taut.json(["vm", "show", "m"])["status"]["nics"][0]["portgroup"], "dmz");
    let refused = taut.refused(["vm", "set", "m", "--portgroup", "nowhere"]);
    assert!(refused.contains("nowhere") && refused.contains("dmz, lan"), "{refused}");

    taut.ok(["vm", "set", "m", "--portgroup", "lan"]);
    eventually("and the first one again", || (lan.pings("10.71.0.5", 3) == 3).then_some(()));
    let events = taut.ok(["events"]);
    assert!(events.contains("nic[0].portgroup: lan → dmz"), "{events}");
}

#[test]
fn a_card_whose_link_is_down_exchanges_nothing_also_after_a_crash_of_the_daemon() {
    let mut taut = Taut::start().with_lan();
    taut.boot("m", FILE);
    let lan = Netns::attach(&taut, "lan", "lan", "10.71.0.1");
    lan.reaches("10.71.0.5", 3);

    taut.ok(["vm", "set", "m", "--link", "down"]);
    eventually("nothing passes", || (lan.pings("10.71.0.5", 1) == 0).then_some(()));
    let vm = taut.json(["vm", "show", "m"]);
    assert_eq!(
        (&vm["status"]["phase"], &vm["status"]["nics"][0]["link"]),
        (&json!("running"), &json!("down"))
    );
    let ports = taut.ok(["port", "list"]);
    assert!(ports.contains("taken down: taut vm set m --nic 0 --link up"), "{ports}");

    taut.kill_daemon();
    taut.restart_daemon();
    assert_eq!(lan.pings("10.71.0.5", 1), 0, "the setting is in the store");
    taut.ok(["vm", "set", "m", "--link", "up"]);
    eventually("frames pass again", || (lan.pings("10.71.0.5", 3) == 3).then_some(()));
}

#[test]
fn a_forged_address_is_reported_once_and_then_summed_up() {
    let taut = Taut::start().with_lan();
    let a = Netns::attach(&taut, "a", "lan", "10.71.0.1");
    let b = Netns::attach(&taut, "b", "lan", "10.71.0.2");
    a.reaches(&b.ip, 3);
    let changed = a.command("ip").args(["link", "set", "taut0", "address", "02:66:00:00:00:01"]).status();
    assert!(changed.unwrap().success());
    assert_eq!(a.pings(&b.ip, 3), 0);
    let told = eventually("an event", || {
        let events = taut.ok(["events"]);
        events.contains("port.forged-address").then_some(events)
    });
    assert!(told.contains("from a source address that is not the port's own"), "{told}");
    a.pings(&b.ip, 3);
    std::thread::sleep(std::time::Duration::from_millis(2500));
    assert_eq!(taut.ok(["events"]).matches("port.forged-address").count(), 1);
}
