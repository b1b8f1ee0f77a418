//! Two networks with a router between them: `gateway` makes the others use it.

use taut_tests::{Netns, Taut};

#[test]
fn a_microguest_and_a_namespace_reach_each_other_through_their_gateways() {
    let taut = Taut::start();
    for (vswitch, group) in [("inner", "inside"), ("outer", "outside")] {
        taut.ok(["vswitch", "create", vswitch]);
        taut.ok(["portgroup", "create", group, "--vswitch", vswitch]);
    }
    // The router is a namespace here, with one attachment in each network.
    let router = Netns::attach(&taut, "router", "inside", "10.71.1.1");
    let second = Netns::name(&taut, "router-outside");
    taut.ok([
        "netns",
        "attach",
        &router.name,
        "--name",
        &second,
        "--ifname",
        "out0",
        "--portgroup",
        "outside",
        "--ip",
        "10.71.2.1/24",
    ]);
    assert!(router.run("sysctl", ["-qw", "net.ipv4.ip_forward=1"]).status.success());

    let inside =
        "kind = \"micro\"\nmemory = \"64MiB\"\n[[nic]]\nportgroup = \"inside\"\nip = \"10.71.1.9/24\"\n";
    taut.boot("routed", &format!("{inside}gateway = \"10.71.1.1\"\n"));
    taut.boot("alone", &inside.replace("1.9", "1.8"));
    let client = Netns::name(&taut, "client");
    let attach = ["netns", "attach", &client, "--portgroup", "outside", "--ip", "10.71.2.9/24"];
    let said = taut.refused([&attach[..], &["--gateway", "10.71.1.1"]].concat());
    assert!(
        said.contains("the gateway 10.71.1.1 is no other machine in the network of 10.71.2.9/24"),
        "{said}"
    );
    let said = taut.ok([&attach[..], &["--gateway", "10.71.2.1"]].concat());
    assert!(said.contains("with 10.71.2.9/24 via 10.71.2.1"), "{said}");
    let client = Netns { name: client, ip: "10.71.2.9".to_owned() };

    client.reaches("10.71.1.9", 3);
    assert_eq!(client.pings("10.71.1.8", 2), 0, "a guest without a gateway cannot answer");
    let netns = format!("netns/{}", client.name);
    taut.ok(["bench", "rr", "routed", &netns, "--address", "10.71.2.9", "--duration", "0.2"]);
    let said = taut.refused(["bench", "rr", "alone", &netns, "--address", "10.71.2.9", "--duration", "0.2"]);
    assert!(said.contains("none has a gateway"), "{said}");
}
