//! MTUs of vSwitches: jumbo frames, interfaces that follow, and packets that are too long.

use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use taut_tests::{Cable, Netns, RawPort, Taut, eventually, ip, long_tcp};
use taut_virtq::header::NetHeader;

use crate::micro::micro;

const A: [u8; 6] = [2, 0, 0, 0, 0, 0xa];
const B: [u8; 6] = [2, 0, 0, 0, 0, 0xb];
const OUTSIDE: [u8; 6] = [2, 0, 0, 0, 0, 0x99];

/// Returns the MTU of an interface of the host.
fn mtu_of(card: &str) -> u32 {
    let text = std::fs::read_to_string(format!("/sys/class/net/{card}/mtu")).expect("it exists");
    text.trim().parse().unwrap()
}

/// Returns the MTU of a namespace's interface.
fn mtu_in(netns: &Netns) -> u32 {
    let text = netns.run("cat", ["/sys/class/net/taut0/mtu"]).stdout;
    String::from_utf8_lossy(&text).trim().parse().unwrap()
}

/// Pings with a packet of this length, which nobody may divide. Returns whether it is answered.
fn passes(from: &Netns, to: &str, packet: u32) -> bool {
    let payload = (packet - 28).to_string();
    from.run("ping", ["-n", "-c", "1", "-W", "2", "-M", "do", "-s", &payload, to]).status.success()
}

/// Sends 4 MiB of datagrams of 8000 bytes through `iperf3`, and returns how many bytes arrived.
fn arrived(from: &Netns, to: &str) -> u64 {
    let datagrams = ["-c", to, "-J", "-u", "-l", "8000", "-b", "50M", "-n", "4M"];
    let report: Value =
        serde_json::from_slice(&from.run("iperf3", datagrams).stdout).expect("iperf3 writes JSON");
    report["end"]["sum_received"]["bytes"].as_u64().unwrap_or_default()
}

/// Returns how many frames were dropped because they are too long, at `end` of the port of an
/// owner.
fn too_long(taut: &Taut, owner: &str, end: &str) -> u64 {
    let ports = taut.json(["port", "list"]);
    let port = ports.as_array().unwrap().iter().find(|port| port["owner"] == *owner).cloned().unwrap();
    let drops = port["counters"][end].as_array().cloned().unwrap_or_default();
    drops.iter().filter(|drop| drop[0] == "oversize").filter_map(|drop| drop[1].as_u64()).sum()
}

fn plain(to: [u8; 6], from: [u8; 6], packet: usize) -> Vec<u8> {
    let mut frame = [&to[..], &from, &[0x88, 0xb5]].concat();
    frame.resize(14 + packet, 9);
    frame
}

fn send(port: &mut RawPort, header: &NetHeader, frame: &[u8]) {
    assert!(port.send(header, frame));
    port.flush();
}

#[test]
fn namespaces_follow_their_vswitch_and_jumbo_frames_pass() {
    let taut = Taut::start().with_lan();
    let [a, b] =
        [("a", "10.72.0.1"), ("b", "10.72.0.2")].map(|(name, ip)| Netns::attach(&taut, name, "lan", ip));
    assert!(passes(&a, &b.ip, 1500) && !passes(&a, &b.ip, 1501));
    taut.ok(["vswitch", "set", "sw", "--mtu", "9000"]);
    assert_eq!([mtu_in(&a), mtu_in(&b)], [9000; 2], "directly after the command");
    assert!(passes(&a, &b.ip, 9000) && passes(&b, &a.ip, 9000));
    let later = Netns::attach(&taut, "c", "lan", "10.72.0.3");
    assert!(passes(&later, &a.ip, 9000), "one that is attached later");
    let server = b.iperf3_server();
    a.streams(&b.ip, &[]);
    // Both ends agree on the smaller length.
    assert!(b.run("ip", ["link", "set", "taut0", "mtu", "1500"]).status.success());
    a.streams(&b.ip, &[]);
    a.streams(&b.ip, &["-R"]);
    assert!(arrived(&a, &b.ip) > 3 << 20, "a receiver takes what it would not send");
    drop(server);
    taut.ok(["vswitch", "set", "sw", "--mtu", "1280"]);
    assert_eq!([mtu_in(&a), mtu_in(&b)], [1280; 2]);
    assert!(passes(&a, &b.ip, 1280) && !passes(&a, &b.ip, 1281));

    // A namespace may ignore it, but not the others.
    assert!(a.run("ip", ["link", "set", "taut0", "mtu", "9000"]).status.success());
    let owner = format!("netns/{}", a.name);
    let before = too_long(&taut, &owner, "tx_drops");
    assert!(!passes(&a, &b.ip, 9000));
    assert_eq!(too_long(&taut, &owner, "tx_drops"), before + 1);
    for (value, problem) in [("1279", "`1279` is not an MTU from 1280 to 9190 bytes"), ("9191", "9191")] {
        let told = taut.refused(["vswitch", "set", "sw", "--mtu", value]);
        assert!(told.contains(problem), "{told}");
    }
}

#[test]
fn a_card_gets_the_mtu_of_its_vswitch_and_its_own_one_back() {
    let mut taut = Taut::start();
    taut.ok(["vswitch", "create", "sw", "--mtu", "9000", "--notify-switches", "off"]);
    taut.ok(["portgroup", "create", "lan", "--vswitch", "sw"]);
    let cable = Cable::plug();
    for state in ["up", "down"] {
        ip(&format!("link set {} {state}", cable.card));
    }
    let before = cable.state();
    taut.ok(["uplink", "add", "sw", &cable.card]);
    assert_eq!(mtu_of(&cable.card), 9000);
    let mut a = RawPort::attach(&taut, "a", "lan", A);
    send(&mut a, &NetHeader::default(), &plain(OUTSIDE, A, 9000));
    assert_eq!(cable.receive(), plain(OUTSIDE, A, 9000));
    let (header, frame) = long_tcp(OUTSIDE, A, 2 * 8960, 8960);
    send(&mut a, &header, &frame);
    assert_eq!([cable.receive().len(), cable.receive().len()], [9014; 2], "the kernel cuts it");
    cable.send(&plain(A, OUTSIDE, 9000));
    eventually("a jumbo frame arrives", || {
        a.await_frame(Duration::from_millis(20));
        let got = a.receive().map(<[u8]>::to_vec);
        a.flush();
        got.filter(|got| *got == plain(A, OUTSIDE, 9000))
    });

    // The card follows down to its own MTU, and up again.
    for mtu in [4000, 1500, 1280, 9190, 9000] {
        taut.ok(["vswitch", "set", "sw", "--mtu", &mtu.to_string()]);
        assert_eq!(mtu_of(&cable.card), mtu.max(1500));
    }
    // A smaller one of somebody else stays, is told, and costs no frame without a count.
    ip(&format!("link set {} mtu 1500", cable.card));
    let owner = format!("uplink/{}", cable.card);
    eventually("the event tells it", || {
        let events = taut.ok(["events"]);
        events.contains("somebody has set its MTU to 1500, below the 9000 of vSwitch `sw`").then_some(())
    });
    let shown = taut.ok(["uplink", "show", &cable.card]);
    assert!(shown.contains("1500, below the 9000 of the vSwitch: longer packets are dropped"), "{shown}");
    eventually("the fabric knows it", || {
        let dropped = too_long(&taut, &owner, "rx_drops");
        let (header, frame) = long_tcp(OUTSIDE, A, 2 * 8960, 8960);
        send(&mut a, &header, &frame);
        eventually("it is counted or sent", || {
            let sent = cable.receive_within(Duration::from_millis(20));
            (sent.is_some() || too_long(&taut, &owner, "rx_drops") > dropped).then_some(())
        });
        (too_long(&taut, &owner, "rx_drops") > dropped).then_some(())
    });
    cable.drain();
    let dropped = too_long(&taut, &owner, "rx_drops");
    send(&mut a, &NetHeader::default(), &plain(OUTSIDE, A, 1501));
    let (header, frame) = long_tcp(OUTSIDE, A, 2 * 1461, 1461);
    send(&mut a, &header, &frame);
    send(&mut a, &NetHeader::default(), &plain(OUTSIDE, A, 1500));
    assert_eq!(cable.receive(), plain(OUTSIDE, A, 1500));
    assert_eq!(too_long(&taut, &owner, "rx_drops"), dropped + 2);
    taut.ok(["vswitch", "set", "sw", "--mtu", "4000"]);
    assert_eq!(mtu_of(&cable.card), 4000, "another wish is put into force");
    ip(&format!("link set {} mtu 1500", cable.card));
    taut.ok(["vswitch", "set", "sw", "--mtu", "9000"]);
    assert_eq!(mtu_of(&cable.card), 9000);

    taut.kill_daemon();
    taut.restart_daemon();
    taut.ok(["uplink", "remove", &cable.card]);
    assert_eq!(cable.state(), before, "the next daemon gives it back");
}

#[test]
fn tcp_passes_between_mtus_through_an_uplink() {
    let taut = Taut::start().with_lan();
    let outside = Netns { name: Netns::name(&taut, "out"), ip: "10.72.1.1".to_owned() };
    let (card, name) = (format!("tj{:x}", std::process::id()), &outside.name);
    ip(&format!("netns add {name}"));
    ip(&format!("link add {card} type veth peer name eth0 netns {name}"));
    ip(&format!("-n {name} addr add 10.72.1.1/24 dev eth0"));
    ip(&format!("-n {name} link set eth0 mtu 9000 up"));
    taut.ok(["vswitch", "set", "sw", "--mtu", "9000"]);
    taut.ok(["uplink", "add", "sw", &card]);
    let inside = Netns::attach(&taut, "in", "lan", "10.72.1.2");
    inside.reaches(&outside.ip, 5);
    assert!(passes(&inside, &outside.ip, 9000) && passes(&outside, &inside.ip, 9000));
    let server = outside.iperf3_server();
    for (inner, outer) in [(9000, 9000), (1500, 9000), (9000, 1500)] {
        for (netns, device, mtu) in [(&inside, "taut0", inner), (&outside, "eth0", outer)] {
            assert!(netns.run("ip", ["link", "set", device, "mtu", &mtu.to_string()]).status.success());
        }
        for direction in [&[][..], &["-R"]] {
            inside.streams(&outside.ip, direction);
        }
    }
    drop(server);
    taut.ok(["uplink", "remove", &card]);
    assert_eq!(mtu_of(&card), 1500);
    ip(&format!("netns del {name}"));
}

#[test]
fn an_interface_that_cannot_have_the_mtu_is_refused_and_left_as_it_is() {
    let taut = Taut::start().with_lan();
    let below = Cable::plug();
    let card = below.card.replace("tt", "tm");
    ip(&format!("link add {card} link {} type macvlan mode private", below.card));
    let ok = |words: &[&str]| taut.ok(words);
    ok(&["vswitch", "create", "jumbo", "--mtu", "9000"]);
    ok(&["portgroup", "create", "big", "--vswitch", "jumbo"]);
    let before = Cable::state_of(&card);
    let limit = format!(
        "the MTU of `{card}` is 1500 and can be at most 1500, but vSwitch `jumbo` has an MTU of 9000"
    );
    let netdev = ["netdev", "attach", &card, "--portgroup", "big", "--mac", "02:00:00:00:00:0b"];
    for words in [&["uplink", "add", "jumbo", &card][..], &netdev] {
        let told = taut.refused(words);
        assert!(told.contains(&limit) && told.contains("hint: "), "{told}");
        assert!(told.contains("taut vswitch set jumbo --mtu 1500"), "{told}");
        assert_eq!(Cable::state_of(&card), before);
    }
    let unchanged = |words: &[&str], what: &str| {
        let vswitch = taut.json(["vswitch", "show", "sw"]);
        let told = taut.refused(words);
        let limit = format!("`{card}` has 1500 and can have at most 1500");
        assert!(told.contains(what) && told.contains(&limit), "{told}");
        assert!(told.contains("hint: choose at most 1500"), "{told}");
        assert_eq!(taut.json(["vswitch", "show", "sw"]), vswitch);
        assert_eq!(mtu_of(&card), 1500);
    };
    ok(&["uplink", "add", "sw", &card]);
    unchanged(&["vswitch", "set", "sw", "--mtu", "1501"], "vSwitch `sw` cannot have an MTU of 1501");
    let moved = taut.refused(["uplink", "set", &card, "--vswitch", "jumbo"]);
    assert!(moved.contains(&limit), "{moved}");
    // With the interface below, it can.
    ip(&format!("link set {} mtu 9000", below.card));
    ok(&["vswitch", "set", "sw", "--mtu", "9000"]);
    assert_eq!(mtu_of(&card), 9000);
    ok(&["uplink", "remove", &card]);
    assert_eq!(mtu_of(&card), 1500);

    // An interface on a port group is set and given back as an uplink is.
    ok(&netdev);
    assert_eq!(mtu_of(&card), 9000);
    let shown = ok(&["netdev", "show", &card]);
    assert!(shown.contains("9000"), "{shown}");
    ok(&["netdev", "detach", &card]);
    assert_eq!(mtu_of(&card), 1500);
    let gone = Command::new("ip").args(["link", "del", &card]).status();
    assert!(gone.unwrap().success());
}

#[test]
fn guests_of_one_vswitch_get_no_longer_packets_than_its_mtu() {
    let taut = Taut::start().with_lan();
    let [mut a, mut b] = [("a", A), ("b", B)].map(|(name, mac)| RawPort::attach(&taut, name, "lan", mac));
    let owner = format!("external/{}", a.name);
    for (mtu, dropped) in [(1500_u16, 2), (9000, 4)] {
        taut.ok(["vswitch", "set", "sw", "--mtu", &mtu.to_string()]);
        let (header, longer) = long_tcp(B, A, 20_000, mtu - 39);
        // A frame without a tag may use the four bytes of one.
        send(&mut a, &NetHeader::default(), &plain(B, A, usize::from(mtu) + 5));
        send(&mut a, &header, &longer);
        let (header, longest) = long_tcp(B, A, 20_000, mtu - 40);
        send(&mut a, &header, &longest);
        send(&mut a, &NetHeader::default(), &plain(B, A, usize::from(mtu)));
        let received = [0, 1].map(|_| {
            eventually("a frame comes", || {
                b.await_frame(Duration::from_millis(20));
                let got = b.receive().map(<[u8]>::len);
                b.flush();
                got
            })
        });
        assert_eq!(received, [longest.len(), usize::from(mtu) + 14]);
        assert_eq!(too_long(&taut, &owner, "tx_drops"), dropped);
    }
}

#[test]
fn a_microguest_is_told_the_mtu_at_its_start() {
    let mut taut = Taut::start().with_lan();
    taut.boot("m1", &micro("10.72.2.1"));
    let a = Netns::attach(&taut, "a", "lan", "10.72.2.2");
    let restarts = |taut: &Taut| {
        let shown = taut.json(["vm", "show", "m1"]);
        let decisions = shown["status"]["machine"]["decisions"].as_array().cloned().unwrap_or_default();
        let restarts = decisions.iter().filter(|decision| decision["restart"] == true);
        restarts.map(|decision| decision["decision"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert!(restarts(&taut).is_empty());
    taut.ok(["vswitch", "set", "sw", "--mtu", "9000"]);
    assert_eq!(restarts(&taut), ["its nic0 has an MTU of 9000 from its next start on; it runs with 1500"]);
    let process = |taut: &Taut| taut.json(["vm", "show", "m1"])["status"]["pid"].clone();
    let before = process(&taut);
    taut.kill_daemon();
    taut.restart_daemon();
    assert_eq!((process(&taut), restarts(&taut).len()), (before, 1), "the next daemon knows it");
    taut.ok(["vm", "stop", "m1"]);
    taut.ok(["vm", "start", "--wait", "m1"]);
    assert!(restarts(&taut).is_empty());
    eventually("it answers", || passes(&a, "10.72.2.1", 64).then_some(()));
    assert!(passes(&a, "10.72.2.1", 9000));
    taut.boot("m2", &micro("10.72.2.3"));
    taut.ok(["bench", "stream", "m1", "m2", "--duration", "1"]);
    let ports = taut.json(["port", "list"]);
    for port in ports.as_array().unwrap() {
        let drops = format!("{} {}", port["counters"]["rx_drops"], port["counters"]["tx_drops"]);
        assert!(!drops.contains("oversize"), "{port}");
    }
}
