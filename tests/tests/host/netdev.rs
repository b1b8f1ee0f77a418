//! Interfaces of the host on port groups: the test is the VM behind a TAP device, and a station
//! behind the bridge that the device is in.

use std::time::Duration;

use taut_tests::{Cable, RawPort, TCP_HEADERS, Taut, eventually, ip, long_tcp};
use taut_virtq::header::NetHeader;

const VM: [u8; 6] = [0x52, 0x54, 0, 0, 0, 1];
const OTHER: [u8; 6] = [0x52, 0x54, 0, 0, 0, 2];
const B: [u8; 6] = [2, 0, 0, 0, 0, 0xb];
const ALL: [u8; 6] = [0xff; 6];
/// Type of frames that nobody answers.
const TYPE: [u8; 2] = [0x88, 0xb5];
/// Time within which a frame comes, if it comes.
const SOON: Duration = Duration::from_millis(300);

fn frame(to: [u8; 6], from: [u8; 6]) -> Vec<u8> {
    let mut frame = [&to[..], &from, &TYPE].concat();
    frame.resize(64, 0x5a);
    frame
}

/// A VM's device and a station in a bridge, and a port of taut.
struct Rig {
    taut: Taut,
    bridge: String,
    vm: Cable,
    station: Cable,
    b: RawPort,
}

impl Rig {
    fn new() -> Self {
        let taut = Taut::start().with_lan();
        let (vm, station) = (Cable::plug(), Cable::plug());
        let bridge = format!("br{}", vm.card);
        ip(&format!("link add {bridge} type bridge"));
        for cable in [&vm, &station] {
            ip(&format!("link set {} master {bridge} up", cable.card));
        }
        ip(&format!("link set {bridge} up"));
        let b = RawPort::attach(&taut, "b", "lan", B);
        let rig = Self { taut, bridge, vm, station, b };
        eventually("the bridge forwards", || rig.reaches_station(VM).then_some(()));
        rig
    }

    /// Returns whether a broadcast from the VM reaches the station in the bridge.
    fn reaches_station(&self, from: [u8; 6]) -> bool {
        // Frames from before say nothing.
        self.station.drain();
        self.vm.send(&frame(ALL, from));
        self.station.receive_if(SOON, |seen| *seen == frame(ALL, from)).is_some()
    }

    /// Returns whether a broadcast from the VM reaches port b.
    fn reaches_b(&mut self, from: [u8; 6]) -> bool {
        while self.b.receive().is_some() {}
        self.b.flush();
        self.vm.send(&frame(ALL, from));
        for _ in 0..30 {
            self.b.await_frame(SOON / 30);
            while let Some(seen) = self.b.receive() {
                if seen == frame(ALL, from) {
                    self.b.flush();
                    return true;
                }
            }
            self.b.flush();
        }
        false
    }

    /// Returns whether a frame to the VM comes there.
    fn vm_receives(&self, wanted: &[u8]) -> bool {
        self.vm.receive_if(SOON, |seen| *seen == *wanted).is_some()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        ip(&format!("link del {}", self.bridge));
    }
}

#[test]
fn the_device_of_a_vm_moves_from_its_bridge_to_a_port_group_and_back() {
    let mut rig = Rig::new();
    let card = rig.vm.card.clone();
    let before = rig.vm.state();
    assert!(!rig.reaches_b(VM));

    // The bridge has learned the address of the VM.
    let said = rig.taut.ok(["netdev", "attach", &card, "--portgroup", "lan"]);
    assert!(said.contains("on port group lan, address 52:54:00:00:00:01, link up"), "{said}");
    for daemon in [true, false] {
        assert!(rig.reaches_b(VM), "the VM reaches the port group");
        assert!(!rig.reaches_station(VM), "the VM does not reach the bridge");
        assert!(rig.b.send(&NetHeader::default(), &frame(VM, B)));
        rig.b.flush();
        assert!(rig.vm_receives(&frame(VM, B)), "the port group reaches the VM");
        rig.station.send(&frame(ALL, OTHER));
        assert!(!rig.vm_receives(&frame(ALL, OTHER)), "the bridge does not reach the VM");
        assert!(!rig.reaches_b(OTHER), "another source address is forged");
        if daemon {
            rig.taut.kill_daemon();
        }
    }
    rig.taut.restart_daemon();
    assert!(rig.reaches_b(VM));
    rig.taut.ok(["portgroup", "create", "other", "--vswitch", "sw", "--vlan", "7"]);
    rig.taut.ok(["netdev", "set", &card, "--portgroup", "other"]);
    assert!(!rig.reaches_b(VM), "it is in another VLAN");

    let said = rig.taut.ok(["netdev", "detach", &card]);
    assert!(said.contains("it is the host's again"), "{said}");
    assert_eq!(rig.vm.state(), before);
    assert!(rig.reaches_station(VM) && !rig.reaches_b(VM));
    rig.station.send(&frame(ALL, OTHER));
    assert!(rig.vm_receives(&frame(ALL, OTHER)));
}

#[test]
fn a_long_frame_is_segmented_for_a_device_that_takes_none() {
    let mut rig = Rig::new();
    let card = rig.vm.card.clone();
    rig.taut.ok(["netdev", "attach", &card, "--portgroup", "lan"]);
    let (header, frame) = long_tcp(VM, B, 3000, 1000);
    assert!(rig.b.send(&header, &frame));
    rig.b.flush();
    let is_segment = |seen: &[u8]| seen[..6] == VM && seen[12..14] == [8, 0] && seen.len() > 500;
    let segments: Vec<usize> =
        std::iter::from_fn(|| rig.vm.receive_if(SOON, is_segment)).map(|frame| frame.len()).collect();
    assert_eq!(segments, [TCP_HEADERS + 1000; 3]);
}

#[test]
fn an_interface_that_cannot_be_on_a_port_group_is_refused() {
    let rig = Rig::new();
    let attach = |card: &str, more: &[&str]| {
        rig.taut.refused(["netdev", "attach", card, "--portgroup", "lan"].iter().chain(more))
    };
    let new = Cable::plug();
    assert!(attach(&new.card, &[]).contains("which Ethernet address is at the other end"));
    assert!(attach("absent0", &[]).contains("no network interface `absent0`"));
    assert!(attach("lo", &[]).contains("no Ethernet interface"));
    assert!(attach(&rig.vm.card, &["--mac", "02:00:00:00:00:0b"]).contains("belongs to external/b"));
    rig.taut.ok(["uplink", "add", "sw", &new.card]);
    assert!(attach(&new.card, &["--mac", "02:00:00:00:00:0c"]).contains("is an uplink already"));
    rig.taut.ok(["netdev", "attach", &rig.vm.card, "--portgroup", "lan"]);
    let limited = Cable::plug();
    let tc = ["qdisc", "add", "dev", &limited.card, "ingress"];
    assert!(std::process::Command::new("tc").args(tc).status().unwrap().success());
    let reason = attach(&limited.card, &["--mac", "02:00:00:00:00:0d"]);
    assert!(reason.contains("tc qdisc del dev"), "{reason}");
    let uplink = rig.taut.refused(["uplink", "add", "sw", &rig.vm.card]);
    assert!(uplink.contains("is on a port group already"), "{uplink}");
}

#[test]
fn another_interface_of_the_same_name_is_left_alone() {
    let taut = Taut::start().with_lan();
    let cable = Cable::plug();
    let card = cable.card.clone();
    taut.ok(["netdev", "attach", &card, "--portgroup", "lan", "--mac", "52:54:00:00:00:01"]);
    drop(cable);
    let status = || taut.json(["netdev", "show", &card])["status"].clone();
    eventually("the interface is missed", || (status()["attached"] == false).then_some(()));
    ip(&format!("link add {card} type veth peer name {card}p"));
    let reason = eventually("the other one is refused", || {
        let reason = status()["reason"].as_str().unwrap_or_default().to_owned();
        reason.contains("is another one than before").then_some(reason)
    });
    assert!(reason.contains("hint: "), "{reason}");
    assert!(!Cable::state_of(&card).contains("bpf"), "it has no filter");
    taut.ok(["netdev", "detach", &card]);
    ip(&format!("link del {card}"));
}
