//! Security policy and MAC learning with real network stacks.

use taut_tests::{Netns, Taut, eventually};

fn ip(netns: &Netns, words: &str) {
    let mut command = netns.command("ip");
    assert!(command.args(words.split_whitespace()).status().unwrap().success(), "ip {words}");
}

#[test]
fn a_changed_address_works_while_the_port_group_accepts_it() {
    let taut = Taut::start().with_lan();
    taut.ok(["portgroup", "create", "loose", "--vswitch", "sw", "--mac-changes"]);
    let a = Netns::attach(&taut, "a", "loose", "10.71.0.1");
    let b = Netns::attach(&taut, "b", "lan", "10.71.0.2");
    a.reaches(&b.ip, 3);
    ip(&a, "link set taut0 address 02:66:00:00:00:01");
    eventually("the new address is found", || (a.pings(&b.ip, 3) == 3).then_some(()));
    // The policy changes under running traffic.
    taut.ok(["portgroup", "set", "loose", "--mac-changes=false"]);
    eventually("the new address is refused", || (a.pings(&b.ip, 1) == 0).then_some(()));
    taut.ok(["portgroup", "set", "loose", "--mac-changes"]);
    eventually("and accepted again", || (a.pings(&b.ip, 3) == 3).then_some(()));
}

#[test]
fn addresses_behind_a_bridge_are_reached_with_mac_learning() {
    let taut = Taut::start().with_lan();
    taut.ok(["portgroup", "create", "nested", "--vswitch", "sw", "--forged-transmits", "--mac-learning"]);
    let bridge = Netns::attach(&taut, "bridge", "nested", "10.71.0.1");
    let b = Netns::attach(&taut, "b", "lan", "10.71.0.2");
    // Two interfaces of one namespace would answer for each other, so the second address is on the
    // bridge.
    ip(&bridge, "addr flush dev taut0");
    ip(&bridge, "link add br0 address 02:66:00:00:00:02 type bridge");
    ip(&bridge, "link set taut0 master br0");
    ip(&bridge, "addr add 10.71.0.1/24 dev br0");
    ip(&bridge, "link set br0 up");
    eventually("the station is reached", || (b.pings(&bridge.ip, 3) == 3).then_some(()));
    taut.ok(["portgroup", "set", "nested", "--mac-learning=false"]);
    // The bridge may send, but the switch does not know the address of the answers.
    eventually("no longer", || (b.pings(&bridge.ip, 1) == 0).then_some(()));
    taut.ok(["portgroup", "set", "nested", "--mac-learning"]);
    eventually("and again", || (b.pings(&bridge.ip, 3) == 3).then_some(()));
}
