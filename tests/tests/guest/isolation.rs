//! A private network behind a firewall VM, with intruders that send whatever they can (goal DP9).
//! None of their frames is seen outside, and they see none of outside's.
//!
//! ```text
//! outside namespace ─┐                                  ┌─ server namespace
//! outside watcher   ─┴─ vSwitch sw ─ firewall VM ─ vSwitch vmnet, VLAN 10 ─ intruders
//!                                       watchers ─ vmnet, all other VLANs
//! ```
//!
//! Watchers are promiscuous, on a trunk or in a neighbouring VLAN, and count every frame. The
//! firewall is a Debian kernel with nftables that passes pings from outside to the server, and the
//! answers. Both are tried before and after, so that a broken network does not count as an isolated
//! one.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use taut_tests::{Netns, RawPort, Taut, any_image, eventually};

use crate::intruder::Intruder;

/// Random frames of each intruder, unless `TAUT_ISOLATION_FRAMES` sets another number.
const FRAMES: u64 = 20_000;
/// Frames of one intruder between two collections of what arrived everywhere.
const BURST: usize = 32;
/// Payload that only the pings of the outside namespace carry.
const SECRET: [u8; 8] = *b"sEcReT!7";

const FIREWALL_OUTSIDE: [u8; 6] = [2, 0xf1, 0, 0, 0, 1];
const FIREWALL_INSIDE: [u8; 6] = [2, 0xf1, 0, 0, 0, 2];

/// The first chain drops what `rp_filter` lets pass: Linux does not check the source of a packet
/// that arrives together with another one for the same destination, and sends "time exceeded" to
/// outside.
const RULES: &str = "flush ruleset
table inet firewall {
  chain spoofed {
    type filter hook prerouting priority raw; policy accept;
    iifname eth1 ip saddr != 10.73.0.0/24 drop
  }
  chain input {
    type filter hook input priority filter; policy drop;
    iifname lo accept
    iifname eth0 icmp type echo-request accept
  }
  chain forward {
    type filter hook forward priority filter; policy drop;
    iifname eth0 oifname eth1 ip daddr 10.73.0.10 icmp type echo-request accept
    iifname eth1 oifname eth0 ct state established ct direction reply accept
  }
}
";
/// Makes kernel and initial RAM file system of the firewall; returns their folder.
fn firewall_image(taut: &Taut) -> PathBuf {
    let rules = taut.file("rules", RULES);
    let image = taut.dir().join("firewall");
    let base = any_image();
    let tool = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("tools/make-firewall.sh");
    let mut command = Command::new(tool);
    command.arg(base.parent().unwrap()).arg(base.file_name().unwrap()).arg(rules).arg(&image);
    assert!(command.status().unwrap().success());
    image
}

fn text(mac: [u8; 6]) -> String {
    mac.map(|octet| format!("{octet:02x}")).join(":")
}

/// The network in the picture above.
struct Lab {
    taut: Taut,
    outside: Netns,
    server: Netns,
    /// Address of the outside namespace.
    outside_mac: [u8; 6],
    intruders: Vec<RawPort>,
    /// Port on the outside vSwitch.
    watcher: RawPort,
    /// Ports on the private vSwitch, outside VLAN 10.
    neighbours: Vec<RawPort>,
}

const OPEN: [&str; 3] = ["--promiscuous", "--forged-transmits", "--mac-changes"];

impl Lab {
    fn new() -> Self {
        let taut = Taut::start().with_lan();
        taut.ok(["vswitch", "create", "vmnet"]);
        let group = |name: &str, vswitch: &str, vlan: &str, more: &[&str]| {
            let words = ["portgroup", "create", name, "--vswitch", vswitch, "--vlan", vlan];
            taut.ok(words.iter().chain(more));
        };
        group("private", "vmnet", "10", &[]);
        group("private-open", "vmnet", "10", &OPEN);
        group("private-nested", "vmnet", "10", &["--promiscuous", "--forged-transmits", "--mac-learning"]);
        group("private-trunk", "vmnet", "10-10", &OPEN);
        group("neighbour-vlan", "vmnet", "20", &OPEN);
        group("neighbour-none", "vmnet", "0", &OPEN);
        group(
            "neighbour-trunk",
            "vmnet",
            "0-9,11-4094",
            &["--promiscuous", "--forged-transmits", "--mac-learning"],
        );
        group("watch", "sw", "4095", &OPEN);

        let image = firewall_image(&taut);
        let image = image.display();
        let mut file = format!(
            "memory = \"256MiB\"
[boot]
kernel = \"{image}/vmlinuz\"
initrd = \"{image}/initrd\"
"
        );
        for (group, mac, ip) in
            [("lan", FIREWALL_OUTSIDE, "10.72.0.1"), ("private", FIREWALL_INSIDE, "10.73.0.1")]
        {
            let mac = text(mac);
            writeln!(file, "[[nic]]\nportgroup = \"{group}\"\nmac = \"{mac}\"\nip = \"{ip}/24\"").unwrap();
        }
        taut.boot("firewall", &file);
        let outside = Netns::attach(&taut, "outside", "lan", "10.72.0.9");
        let server = Netns::attach(&taut, "server", "private", "10.73.0.10");
        for (netns, to, via) in [(&outside, "10.73.0.0/24", "10.72.0.1"), (&server, "default", "10.73.0.1")] {
            assert!(netns.run("ip", ["route", "add", to, "via", via]).status.success());
        }
        let outside_mac = mac_of(&outside);
        let raw = |name: &str, group: &str, number: u8| {
            RawPort::attach(&taut, name, group, [2, 0x66, 0, 0, 0, number])
        };
        let intruders = vec![
            raw("strict", "private", 1),
            raw("open", "private-open", 2),
            raw("nested", "private-nested", 3),
            raw("trunk", "private-trunk", 4),
        ];
        let watcher = raw("watcher", "watch", 10);
        let neighbours = vec![
            raw("vlan20", "neighbour-vlan", 11),
            raw("none", "neighbour-none", 12),
            raw("others", "neighbour-trunk", 13),
        ];
        Self { taut, outside, server, outside_mac, intruders, watcher, neighbours }
    }

    /// Asserts that outside reaches the server through the firewall, and that nobody inside reaches
    /// outside.
    fn control(&self) {
        let speed = "firewall: eth0 states 10000 Mbit/s";
        eventually("the guest reads a speed", || {
            self.taut.ok(["vm", "log", "firewall"]).contains(speed).then_some(())
        });
        eventually("pings pass the firewall", || (self.outside.pings("10.73.0.10", 3) == 3).then_some(()));
        assert_eq!(self.server.pings("10.72.0.9", 2), 0, "the firewall lets nothing out by itself");
    }

    /// Returns true for a frame that belongs outside. There the firewall sends only ARP and answers
    /// to pings.
    fn is_outsiders(&self, frame: &[u8]) -> bool {
        let source = &frame[6..12];
        let arp = frame[12..14] == [8, 6] && frame.get(28..32) == Some(&[10, 72, 0, 1]);
        let pong = frame[12..14] == [8, 0]
            && frame.get(23) == Some(&1)
            && frame.get(34) == Some(&0)
            && contains_secret(frame);
        source == self.outside_mac || source == FIREWALL_OUTSIDE && (arp || pong)
    }
}

fn mac_of(netns: &Netns) -> [u8; 6] {
    let output = netns.run("cat", ["/sys/class/net/taut0/address"]).stdout;
    let text = String::from_utf8(output).unwrap();
    let octets: Vec<_> = text.trim().split(':').map(|octet| u8::from_str_radix(octet, 16).unwrap()).collect();
    octets.try_into().unwrap()
}

fn contains_secret(frame: &[u8]) -> bool {
    frame.windows(SECRET.len()).any(|window| window == SECRET)
}

#[derive(Debug, Default)]
struct Seen {
    /// Frames outside that do not belong there.
    outside: u64,
    /// Frames of any kind in other VLANs of the private vSwitch.
    neighbours: u64,
    /// Frames from outside that reached an intruder.
    inside: u64,
    /// Unicast for others that reached an intruder that may not see it.
    sniffed: u64,
    /// Frames that the outside watcher saw and that belong there.
    legitimate: u64,
    /// Those of [`Self::legitimate`] that came from the firewall.
    answers: u64,
    /// Frames that intruders received from each other.
    among_themselves: u64,
    /// Place and content of the first frame that should not have been seen.
    evidence: Option<(String, Vec<u8>)>,
}

impl Lab {
    /// Collects and classifies everything that has arrived.
    fn look(&mut self, seen: &mut Seen) {
        let mut watcher = Vec::new();
        while let Some(frame) = self.watcher.receive() {
            watcher.push(frame.to_vec());
        }
        for frame in watcher {
            let belongs = self.is_outsiders(&frame);
            if !belongs && seen.outside == 0 {
                seen.evidence = Some(("outside".to_owned(), frame.clone()));
            }
            *(if belongs { &mut seen.legitimate } else { &mut seen.outside }) += 1;
            seen.answers += u64::from(belongs && frame[6..12] == FIREWALL_OUTSIDE);
        }
        for port in &mut self.neighbours {
            let name = port.name.clone();
            while let Some(frame) = port.receive() {
                if seen.neighbours == 0 {
                    seen.evidence = Some((name.clone(), frame.to_vec()));
                }
                seen.neighbours += 1;
            }
        }
        for port in &mut self.intruders {
            let strict = port.name == "strict";
            let mac = port.mac;
            while let Some(frame) = port.receive() {
                seen.inside += u64::from(contains_secret(frame));
                seen.sniffed += u64::from(strict && frame[0] & 1 == 0 && frame[..6] != mac);
                seen.among_themselves += 1;
            }
        }
        for port in self.intruders.iter_mut().chain(&mut self.neighbours).chain([&mut self.watcher]) {
            port.flush();
        }
    }

    /// Has every intruder send so many frames.
    fn intrude(&mut self, frames: u64, seen: &mut Seen) {
        let targets = [FIREWALL_INSIDE, FIREWALL_OUTSIDE, self.outside_mac, mac_of(&self.server)];
        let known = targets.into_iter().chain(self.intruders.iter().map(|port| port.mac)).collect::<Vec<_>>();
        let mut intruders: Vec<_> = (0..self.intruders.len())
            .map(|index| Intruder::new(index as u64, self.intruders[index].mac, known.clone()))
            .collect();
        let mut left = vec![frames; intruders.len()];
        while left.iter().any(|&left| left > 0) {
            for (index, intruder) in intruders.iter_mut().enumerate() {
                let port = &mut self.intruders[index];
                for _ in 0..BURST.min(left[index] as usize) {
                    let (header, frame) = intruder.frame();
                    if !port.send(header, frame) {
                        break;
                    }
                    intruder.sent();
                    left[index] -= 1;
                }
            }
            self.look(seen);
        }
        eventually("everything has been dealt with", || {
            self.look(seen);
            self.intruders.iter_mut().all(RawPort::is_idle).then_some(())
        });
    }
}

#[test]
fn intruders_in_a_private_network_are_not_seen_outside() {
    let frames = std::env::var("TAUT_ISOLATION_FRAMES").map_or(FRAMES, |number| number.parse().unwrap());
    let mut lab = Lab::new();
    lab.control();
    let mut before = Seen::default();
    lab.look(&mut before);
    // A frame may have passed before a watcher's rings ran.
    let watchers = [&lab.watcher].into_iter().chain(&lab.neighbours);
    let lost_before: Vec<_> =
        watchers.map(|port| port.info(&lab.taut)["counters"]["rx_drops"].clone()).collect();
    let secret = SECRET.map(|byte| format!("{byte:02x}")).concat();
    let mut pings = lab.outside.command("ping");
    pings.args(["-n", "-q", "-i", "0.05", "-p", &secret, "10.72.0.1"]).stdout(std::process::Stdio::null());
    let pings = taut_tests::Background::start(&mut pings);
    let mut seen = Seen::default();
    lab.intrude(frames, &mut seen);
    // The firewall has finished its queue when it answers again, more than once.
    let already = seen.answers;
    eventually("outside's own pings are answered again", || {
        lab.look(&mut seen);
        (seen.answers > already + 4).then_some(())
    });
    drop(pings);
    lab.control();

    let ports = lab.intruders.iter().chain([&lab.watcher]).chain(&lab.neighbours);
    let counters: Vec<_> =
        ports.map(|port| (port.name.clone(), port.info(&lab.taut)["counters"].clone())).collect();
    for (name, counters) in &counters {
        println!("{name}: {counters}");
    }
    let Seen { outside, neighbours, inside, sniffed, legitimate, answers: _, among_themselves, evidence } =
        seen;
    for (name, counters) in &counters[..lab.intruders.len()] {
        assert!(counters["tx_frames"].as_u64() >= Some(frames), "{name} {counters}");
    }
    for ((name, counters), before) in counters[lab.intruders.len()..].iter().zip(lost_before) {
        assert_eq!(counters["rx_drops"], before, "{name} lost what it should have seen");
    }
    assert!(among_themselves > frames, "the intruders' frames do pass where they may");
    assert!(legitimate > 0, "the watcher sees what there is");
    // The line for `taut-goals`, which judges these counts: everything else holds by now.
    println!(
        "ISOLATION ports={} sent={frames} outside={outside} neighbours={neighbours} inside={inside} \
         sniffed={sniffed} legitimate={legitimate} among_themselves={among_themselves}",
        lab.intruders.len()
    );
    assert_eq!((outside, neighbours, inside, sniffed), (0, 0, 0, 0), "{evidence:02x?}");
}
