//! Guests and the MTU of their vSwitch.

use taut_tests::{Netns, Taut, any_image, eventually};

use crate::direct;

/// Pings with packets of 9000 bytes. Returns how many frames a VM sent meanwhile.
fn answers(taut: &Taut, from: &Netns, to: &str) -> u64 {
    let sent = || {
        let port = taut.json(["port", "show", "vm/g0/nic0"]);
        port["counters"]["tx_frames"].as_u64().expect("a number of frames")
    };
    let before = sent();
    let output = from.run("ping", ["-n", "-c", "10", "-i", "0.1", "-W", "10", "-M", "do", "-s", "8972", to]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    sent() - before
}

#[test]
fn a_linux_guest_takes_the_mtu_of_its_vswitch_at_its_start() {
    let taut = Taut::start().with_lan();
    taut.boot("g0", &direct(&any_image(), "ip = \"10.72.0.1/24\""));
    let a = Netns::attach(&taut, "a", "lan", "10.72.0.2");
    eventually("the guest answers", || (a.pings("10.72.0.1", 1) == 1).then_some(()));
    taut.ok(["vswitch", "set", "sw", "--mtu", "9000"]);
    let shown = taut.ok(["vm", "show", "g0"]);
    assert!(shown.contains("its nic0 has an MTU of 9000 from its next start on"), "{shown}");
    assert!(answers(&taut, &a, "10.72.0.1") >= 70, "it takes long packets, and answers in fragments");
    taut.ok(["vm", "stop", "g0"]);
    taut.ok(["vm", "start", "--wait", "g0"]);
    let shown = taut.ok(["vm", "show", "g0"]);
    assert!(!shown.contains("has an MTU of"), "{shown}");
    eventually("the guest answers", || (a.pings("10.72.0.1", 1) == 1).then_some(()));
    assert!(answers(&taut, &a, "10.72.0.1") < 30, "in one packet each");
}
