//! Network I/O control: what ports may send to an uplink that cannot take everything.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

use taut_tests::{Cable, RawPort, Taut, eventually};
use taut_virtq::header::NetHeader;

const OUTSIDE: [u8; 6] = [2, 0, 0, 0, 0, 0x99];
const FRAME: usize = 1514;
/// Bits of a frame on the wire.
const BITS: f64 = 8.0 * (FRAME + 24) as f64;
const MBIT: f64 = 1e6;
/// Number of measurements after which a test gives up.
const MOST_MEASUREMENTS: usize = 10;

/// Ports of two classes on a vSwitch whose uplink has 100 Mbit/s.
struct Rig {
    taut: Taut,
    cable: Cable,
    ports: Vec<RawPort>,
}

impl Rig {
    fn new() -> Self {
        let taut = Taut::start().with_lan();
        let cable = Cable::plug();
        let words = ["-s", &cable.card, "speed", "100", "duplex", "full", "autoneg", "off"];
        assert!(Command::new("ethtool").args(words).status().unwrap().success());
        taut.ok(["uplink", "add", "sw", &cable.card]);
        taut.ok(["portgroup", "create", "storage", "--vswitch", "sw", "--traffic-class", "nfs"]);
        let ports = [(1, "lan"), (2, "storage")].map(|(number, group)| {
            RawPort::attach(&taut, &format!("p{number}"), group, [2, 0, 0, 0, 0, number])
        });
        let rig = Self { taut, cable, ports: ports.into() };
        eventually("the speed is known", || {
            let uplinks = rig.taut.json(["uplink", "list"]);
            (uplinks[0]["status"]["speed_mbit"] == 100).then_some(())
        });
        rig
    }

    fn set(&self, words: &[&str]) {
        self.taut.ok(["vswitch", "set", "sw"].into_iter().chain(words.iter().copied()));
    }

    /// Lets these ports flood for a second. Returns the rate of each in Mbit/s.
    fn rates(&mut self, senders: &[usize]) -> BTreeMap<usize, f64> {
        let mut space = vec![0; 2000];
        let mut frames = BTreeMap::<usize, u32>::new();
        let (begin, time) = (Instant::now() + Duration::from_millis(500), Duration::from_secs(1));
        while begin.elapsed() < time {
            for &sender in senders {
                let port = &mut self.ports[sender];
                let mut frame = [&OUTSIDE[..], &port.mac, &[0x88, 0xb5]].concat();
                frame.resize(FRAME, 0);
                while port.send(&NetHeader::default(), &frame) {}
                port.flush();
            }
            self.cable.take_each(&mut space, |frame| {
                if Instant::now() >= begin && frame[..6] == OUTSIDE {
                    *frames.entry(usize::from(frame[11]) - 1).or_default() += 1;
                }
            });
            std::thread::sleep(Duration::from_micros(200));
        }
        for &sender in senders {
            // The next measurement begins with empty rings.
            eventually("the ring is empty", || {
                self.cable.drain();
                self.ports[sender].is_idle().then_some(())
            });
        }
        let rate = |sender| f64::from(frames.get(sender).copied().unwrap_or(0)) * BITS / MBIT;
        senders.iter().map(|sender| (*sender, rate(sender))).collect()
    }

    /// Asserts that these ports, when they flood together, each have a rate within 15 % of the one
    /// stated, in Mbit/s.
    ///
    /// If all of them together have less than 90 % of the sum, the machine had no time for this
    /// test, and the rates say nothing about shares. They are measured again then.
    fn assert_rates(&mut self, what: &str, expected: &[(usize, f64)]) {
        let senders: Vec<usize> = expected.iter().map(|(sender, _)| *sender).collect();
        let sum: f64 = expected.iter().map(|(_, rate)| rate).sum();
        let mut starved = Vec::new();
        for _ in 0..MOST_MEASUREMENTS {
            let rates = self.rates(&senders);
            if rates.values().sum::<f64>() < 0.9 * sum {
                starved.push(rates);
                continue;
            }
            for (sender, expected) in expected {
                let got = rates[sender];
                assert!(
                    (got / expected - 1.0).abs() < 0.15,
                    "{what}: port {sender} has {got} Mbit/s instead of {expected}"
                );
            }
            return;
        }
        panic!("{what}: the ports together never came near {sum} Mbit/s: {starved:?}");
    }
}

#[test]
fn classes_share_a_busy_uplink_and_a_limit_holds_on_an_idle_one() {
    let mut rig = Rig::new();
    rig.set(&["--network-io", "--traffic", "nfs:shares=25"]);
    rig.assert_rates("four fifths and one fifth", &[(0, 80.0), (1, 20.0)]);
    rig.set(&["--traffic", "nfs:limit=10Mbit"]);
    rig.assert_rates("the limit", &[(1, 10.0)]);
    // The rules are in force again after the fabric was replaced.
    rig.taut.ok(["daemon", "upgrade-fabric"]);
    rig.assert_rates("the limit after an upgrade", &[(1, 10.0)]);
    rig.set(&["--network-io", "off"]);
    assert!(rig.rates(&[1])[&1] > 100.0, "a TAP device takes more than it states");
}

#[test]
fn a_reservation_is_kept_and_three_quarters_can_be_reserved() {
    let mut rig = Rig::new();
    rig.set(&["--traffic", "nfs:shares=1,reservation=60Mbit"]);
    rig.assert_rates("the rest and the reservation", &[(0, 39.6), (1, 60.4)]);
    let error = rig.taut.refused(["vswitch", "set", "sw", "--traffic", "vsan:reservation=16Mbit"]);
    let expected = "the reservations on vSwitch `sw` are 76Mbit/s, more than the 75Mbit/s that can be reserved, \
                    75 % of its slowest uplink";
    assert!(error.contains(expected) && error.contains("hint: "), "{error}");
    let shown = rig.taut.json(["vswitch", "show", "sw"]);
    assert_eq!(shown["spec"]["network_io"]["classes"].as_object().unwrap().len(), 1, "nothing changed");
}

#[test]
fn a_card_of_a_vm_has_a_part_of_its_own() {
    let rig = Rig::new();
    rig.set(&["--network-io"]);
    let file = rig.taut.file("m.toml", "name = \"m\"\nkind = \"micro\"\n[[nic]]\nportgroup = \"lan\"\n");
    rig.taut.ok(["vm", "create", "-f", file.to_str().unwrap(), "--start"]);
    let told = rig.taut.ok([
        "vm",
        "set",
        "m",
        "--nic",
        "0",
        "--uplink-allocation",
        "shares=high,reservation=70Mbit",
    ]);
    assert!(told.contains("card 0 uplink allocation shares=high,reservation=70Mbit"), "{told}");
    let error =
        rig.taut.refused(["vm", "set", "m", "--nic", "0", "--uplink-allocation", "reservation=80Mbit"]);
    assert!(error.contains("80Mbit/s for `virtualmachine` (by 1 card)"), "{error}");
    rig.taut.ok(["vm", "set", "m", "--nic", "0", "--uplink-allocation", "default"]);
}
