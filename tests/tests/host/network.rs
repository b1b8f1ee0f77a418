//! Namespaces with ordinary programs on the vSwitch.

use taut_tests::{Netns, Taut, eventually};

#[test]
fn ordinary_programs_reach_each_other() {
    let taut = Taut::start().with_lan();
    let a = Netns::attach(&taut, "a", "lan", "10.71.0.1");
    let b = Netns::attach(&taut, "b", "lan", "10.71.0.2");
    a.reaches(&b.ip, 20);
    let stated = a.run("cat", ["/sys/class/net/taut0/speed", "/sys/class/net/taut0/duplex"]).stdout;
    assert_eq!(String::from_utf8_lossy(&stated), "10000\nfull\n");

    let _server = b.iperf3_server();
    a.streams(&b.ip, &[]);
}

#[test]
fn only_the_same_vswitch_and_vlan_is_one_network() {
    let taut = Taut::start().with_lan();
    taut.ok(["vswitch", "create", "other"]);
    taut.ok(["portgroup", "create", "twin", "--vswitch", "sw"]);
    taut.ok(["portgroup", "create", "vlan10", "--vswitch", "sw", "--vlan", "10"]);
    taut.ok(["portgroup", "create", "elsewhere", "--vswitch", "other"]);
    let here = Netns::attach(&taut, "here", "lan", "10.71.0.1");
    let twin = Netns::attach(&taut, "twin", "twin", "10.71.0.2");
    let vlan10 = Netns::attach(&taut, "v10", "vlan10", "10.71.0.3");
    let elsewhere = Netns::attach(&taut, "else", "elsewhere", "10.71.0.4");
    // Two port groups with the same vSwitch and VLAN are one network.
    here.reaches(&twin.ip, 3);
    assert_eq!(here.pings(&vlan10.ip, 2), 0, "another VLAN is another network");
    assert_eq!(here.pings(&elsewhere.ip, 2), 0, "another vSwitch is another network");
}

#[test]
fn a_forged_source_address_is_dropped_and_counted() {
    let taut = Taut::start().with_lan();
    let a = Netns::attach(&taut, "a", "lan", "10.71.0.1");
    let b = Netns::attach(&taut, "b", "lan", "10.71.0.2");
    a.reaches(&b.ip, 1);
    assert!(a.run("ip", ["link", "set", "taut0", "address", "02:66:00:00:00:01"]).status.success());
    assert_eq!(a.pings(&b.ip, 2), 0);
    let ports = taut.json(["port", "list"]);
    let drops: Vec<_> = ports
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|port| port["counters"]["tx_drops"].as_array().cloned().unwrap_or_default())
        .filter(|drop| drop[0] == "forged-transmit")
        .collect();
    assert!(drops.iter().any(|drop| drop[1].as_u64().unwrap() > 0), "{ports}");
}

#[test]
fn detaching_leaves_nothing_behind() {
    let taut = Taut::start().with_lan();
    let a = Netns::attach(&taut, "a", "lan", "10.71.0.1");
    assert!(a.exists());
    taut.ok(["netns", "detach", &a.name]);
    eventually("the namespace is gone", || (!a.exists()).then_some(()));
    assert!(taut.json(["port", "list"]).as_array().unwrap().is_empty());
}

#[test]
fn an_existing_namespace_is_kept() {
    let taut = Taut::start().with_lan();
    let name = Netns::name(&taut, "own");
    let ip = |args: &[&str]| {
        std::process::Command::new("ip").args(args).status().expect("ip can be run").success()
    };
    assert!(ip(&["netns", "add", &name]));
    taut.ok(["netns", "attach", &name, "--portgroup", "lan", "--ip", "10.71.0.1/24"]);
    taut.ok(["netns", "detach", &name]);
    let interface_gone = || !ip(&["-n", &name, "link", "show", "taut0"]);
    eventually("the interface is gone", || interface_gone().then_some(()));
    assert!(ip(&["netns", "del", &name]), "the namespace was still there");
}
