//! Uplinks by XDP sockets.

use std::process::Command;
use std::time::{Duration, Instant};

use taut_tests::{Cable, Netns, Taut, eventually, ip, kill_9};

use super::uplink::{A, ALL, B, OUTSIDE, Rig, frame, next, numbered, pass_while, send, vlan};

/// Options of an uplink by an XDP socket.
const XDP: [&str; 2] = ["--backend", "xdp"];
/// Message of a fabric that has found all chunks of memory.
const ACCOUNTED: &str = "all chunks of the XDP socket are accounted for";
/// Message of one that has not.
const MISSING: &str = "chunks of the XDP socket are missing";

/// Waits until no XDP program is attached to a card.
fn until_detached(card: &str) {
    eventually("the program is detached", || (!Cable::state_of(card).contains("xdp")).then_some(()));
}

/// Sets the number of queues of both ends of a veth card.
fn set_queues(veth: &Veth, count: u32) {
    let count = count.to_string();
    let of_card = ["-L", &veth.card, "rx", &count, "tx", &count];
    let of_peer = ["-L", "eth0", "rx", &count, "tx", &count];
    let mut card = Command::new("ethtool");
    let mut peer = veth.outside.command("ethtool");
    card.args(of_card);
    peer.args(of_peer);
    // The driver of a card with an XDP program wants as many queues as the other end sends by.
    for ethtool in [&mut card, &mut peer] {
        let done = ethtool.output().expect("ethtool can be run");
        assert!(done.status.success(), "{done:?}");
    }
}

/// Sends datagrams of many flows into a namespace, where all of them arrive, by each of so many
/// queues of the card.
fn flows_pass_by_each_queue(veth: &Veth, inside: &Netns, queues: usize) {
    const FLOWS: u64 = 100;
    let before = (0..queues).map(|queue| by_queue(veth, queue)).collect::<Vec<_>>();
    let arrived = datagrams(inside);
    // Each one has a source port of its own, by which Linux chooses a queue.
    let each = format!("for n in {{1..{FLOWS}}}; do echo >/dev/udp/{}/9; done", inside.ip);
    let sent = veth.outside.run("bash", ["-c", &each]);
    assert!(sent.status.success(), "{sent:?}");
    eventually("all datagrams arrive", || (datagrams(inside) >= arrived + FLOWS).then_some(()));
    for (queue, before) in before.into_iter().enumerate() {
        assert!(by_queue(veth, queue) > before, "queue {queue} had frames");
    }
}

/// Returns the number of frames that the XDP program of a veth card has had from a queue.
fn by_queue(veth: &Veth, queue: usize) -> u64 {
    let output = Command::new("ethtool").args(["-S", &veth.card]).output().expect("ethtool can be run");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let name = format!("rx_queue_{queue}_xdp_packets:");
    let value = text.lines().find_map(|line| line.trim().strip_prefix(&name));
    value.and_then(|value| value.trim().parse().ok()).unwrap_or_else(|| panic!("no {name} in {text}"))
}

/// Returns the number of whole datagrams that have come into a namespace, where nobody waits for
/// them.
fn datagrams(inside: &Netns) -> u64 {
    let snmp = inside.run("cat", ["/proc/net/snmp"]).stdout;
    let text = String::from_utf8_lossy(&snmp).into_owned();
    let mut lines = text.lines().filter(|line| line.starts_with("Udp:"));
    let [names, values] = [(); 2].map(|()| lines.next().expect("UDP is counted").split_whitespace());
    let number = names.zip(values).find(|(name, _)| *name == "NoPorts").map(|(_, value)| value);
    number.expect("a number of datagrams").parse().expect("a number")
}

/// A veth card whose other end is in a namespace, with an address.
struct Veth {
    card: String,
    outside: Netns,
}

impl Veth {
    fn new(taut: &Taut, options: &str) -> Self {
        let outside = Netns { name: Netns::name(taut, "out"), ip: "10.72.0.1".to_owned() };
        let card = format!("tx{:x}", std::process::id());
        let name = &outside.name;
        ip(&format!("netns add {name}"));
        ip(&format!("link add {card} {options} type veth peer name eth0 {options} netns {name}"));
        ip(&format!("-n {name} addr add {}/24 dev eth0", outside.ip));
        ip(&format!("-n {name} link set eth0 up"));
        Self { card, outside }
    }
}

impl Drop for Veth {
    fn drop(&mut self) {
        ip(&format!("netns del {}", self.outside.name));
    }
}

#[test]
fn ports_reach_the_outside_by_an_xdp_socket_and_are_reached() {
    let Rig { taut, cable, mut a, mut b } = Rig::with(&XDP);
    send(&mut a, &frame(OUTSIDE, A, &[], 1));
    assert_eq!(cable.receive(), frame(OUTSIDE, A, &[], 1));
    send(&mut b, &frame(ALL, B, &[], 2));
    assert_eq!(cable.receive(), frame(ALL, B, &[vlan(10)], 2));
    cable.send(&frame(A, OUTSIDE, &[], 3));
    assert_eq!(next(&mut a), frame(A, OUTSIDE, &[], 3));
    cable.send(&frame(B, OUTSIDE, &[vlan(10)], 4));
    assert_eq!(next(&mut b), frame(B, OUTSIDE, &[], 4));
    cable.send(&frame(ALL, A, &[], 5));
    cable.send(&frame(ALL, OUTSIDE, &[vlan(10)], 6));
    assert_eq!(next(&mut b), frame(ALL, OUTSIDE, &[], 6), "nothing of another VLAN came before");

    let uplink = taut.json(["uplink", "show", &cable.card]);
    assert_eq!(uplink["spec"]["backend"], "xdp", "{uplink}");
    let mode = serde_json::json!({ "native": true, "zero_copy": false, "queues": 1 });
    assert_eq!(uplink["status"]["xdp"], mode);
    let shown = taut.ok(["uplink", "show", &cable.card]);
    assert!(shown.contains("xdp, native, copy"), "{shown}");
    assert!(cable.state().contains("xdp"), "{}", cable.state());
}

#[test]
fn a_card_with_an_xdp_program_is_given_back_as_it_was() {
    let taut = Taut::start().with_lan();
    let cable = Cable::plug();
    for state in ["up", "down"] {
        ip(&format!("link set {} {state}", cable.card));
    }
    let before = cable.state();
    for _ in 0..2 {
        taut.ok([&["uplink", "add", "sw", &cable.card][..], &XDP].concat());
        assert!(cable.state().contains("xdp"));
        taut.ok(["uplink", "remove", &cable.card]);
        assert_eq!((cable.state(), cable.promiscuity()), (before.clone(), 0));
    }
}

#[test]
fn a_card_that_was_in_another_namespace_has_no_program_there_and_works_again() {
    let taut = Taut::start().with_lan();
    let veth = Veth::new(&taut, "");
    let Veth { card, outside } = &veth;
    taut.ok([&["uplink", "add", "sw", card][..], &XDP].concat());
    let inside = Netns::attach(&taut, "in", "lan", "10.72.0.2");
    inside.reaches(&outside.ip, 5);
    // It keeps its number, so it looks like the same interface when it is back.
    ip(&format!("link set {card} netns {}", outside.name));
    eventually("the program is gone", || {
        let shown = outside.run("ip", ["-d", "link", "show", "dev", card.as_str()]).stdout;
        (!String::from_utf8_lossy(&shown).contains("xdp")).then_some(())
    });
    ip(&format!("-n {} link set {card} netns {}", outside.name, std::process::id()));
    eventually("the uplink works again", || (inside.pings(&outside.ip, 1) == 1).then_some(()));
}

#[test]
fn each_queue_of_a_card_has_a_socket_also_when_there_are_more_than_before() {
    let taut = Taut::start().with_lan();
    let veth = Veth::new(&taut, "numrxqueues 3 numtxqueues 3");
    let card = &veth.card;
    set_queues(&veth, 1);
    // XDP loses the note that a checksum is missing.
    let checksums = veth.outside.run("ethtool", ["-K", "eth0", "tx", "off"]);
    assert!(checksums.status.success(), "{checksums:?}");
    taut.ok([&["uplink", "add", "sw", card][..], &XDP].concat());
    let inside = Netns::attach(&taut, "in", "lan", "10.72.0.2");
    inside.reaches(&veth.outside.ip, 5);

    set_queues(&veth, 3);
    eventually("the uplink has taken up the queues", || {
        let status = &taut.json(["uplink", "show", card])["status"];
        (status["attached"] == true && status["xdp"]["queues"] == 3).then_some(())
    });
    let shown = taut.ok(["uplink", "show", card]);
    assert!(shown.contains("xdp, native, copy, 3 queues"), "{shown}");
    inside.reaches(&veth.outside.ip, 1);
    flows_pass_by_each_queue(&veth, &inside, 3);

    kill_9(taut.fabric_pid());
    inside.reaches(&veth.outside.ip, 1);
    flows_pass_by_each_queue(&veth, &inside, 3);
    let logs = taut.logs();
    assert!(logs.matches(ACCOUNTED).count() >= 3 && !logs.contains(MISSING), "{logs}");
    taut.ok(["uplink", "remove", card]);
    until_detached(card);
}

#[test]
fn frames_wait_for_a_card_that_is_set_down_but_not_for_long() {
    let Rig { taut, cable, mut a, .. } = Rig::with(&XDP);
    let set = |state| ip(&format!("link set {} {state}", cable.card));
    let mut number = 0;
    // The kernel has the frame before the switch knows that the card has no link.
    let mut leave_a_frame = || {
        number += 1;
        set("down");
        send(&mut a, &frame(OUTSIDE, A, &[], number));
        number
    };
    eventually("a frame is sent late, without another one", || {
        let number = leave_a_frame();
        set("up");
        let late = cable.receive_within(Duration::from_secs(1));
        (late? == frame(OUTSIDE, A, &[], number)).then_some(())
    });

    let is_given_up = || taut.logs().contains("the XDP socket is given up");
    // If the switch knows first that the card has no link, no frame is left.
    let leave_one_for_long = || {
        let number = leave_a_frame();
        let end = Instant::now() + Duration::from_secs(9);
        while Instant::now() < end {
            if is_given_up() {
                return Some(number);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        set("up");
        std::thread::sleep(Duration::from_secs(1));
        None
    };
    let old =
        std::iter::repeat_with(leave_one_for_long).take(5).flatten().next().expect("a frame is too old");
    assert!(cable.state().contains("state DOWN"), "{}", cable.state());
    cable.drain();
    set("up");
    let new = frame(OUTSIDE, A, &[], 0);
    eventually("the uplink works again", || {
        send(&mut a, &new);
        let got = cable.receive_within(Duration::from_millis(200))?;
        assert_ne!(got, frame(OUTSIDE, A, &[], old), "the old frame is not sent");
        (got == new).then_some(())
    });
}

#[test]
fn tcp_passes_an_xdp_socket_in_both_directions() {
    let taut = Taut::start().with_lan();
    let veth = Veth::new(&taut, "");
    let Veth { card, outside } = &veth;
    taut.ok([&["uplink", "add", "sw", card][..], &XDP].concat());
    let inside = Netns::attach(&taut, "in", "lan", "10.72.0.2");
    inside.reaches(&outside.ip, 20);
    // XDP loses the note that a checksum is missing.
    let mut ethtool = outside.command("ethtool");
    assert!(ethtool.args(["-K", "eth0", "tx", "off"]).output().unwrap().status.success());
    let server = outside.iperf3_server();
    for direction in [&[][..], &["-R"]] {
        inside.streams(&outside.ip, direction);
    }
    drop(server);
    taut.ok(["uplink", "remove", card]);
    until_detached(card);
}

#[test]
fn no_frame_and_no_chunk_is_lost_when_a_fabric_dies_or_is_upgraded() {
    let Rig { taut, cable, mut a, mut b } = Rig::with(&XDP);
    pass_while(&cable, &mut b, 4000, || {
        for _ in 0..2 {
            std::thread::sleep(Duration::from_millis(400));
            kill_9(taut.fabric_pid());
        }
        std::thread::sleep(Duration::from_millis(500));
        taut.ok(["daemon", "upgrade-fabric"]);
    });
    // More frames than there are chunks pass in both directions.
    for number in 0..5000_u32 {
        cable.send(&numbered(number)[0]);
        assert_eq!(next(&mut b), numbered(number)[1]);
        let sent = frame(OUTSIDE, A, &[], number as u8);
        send(&mut a, &sent);
        assert_eq!(cable.receive(), sent);
    }
    let logs = taut.logs();
    assert!(logs.matches(ACCOUNTED).count() >= 4, "{logs}");
    assert!(!logs.contains(MISSING), "{logs}");
}

#[test]
fn an_xdp_socket_survives_the_daemon_and_ends_with_both_processes() {
    let Rig { mut taut, cable, mut a, .. } = Rig::with(&XDP);
    let mut number = 0;
    let mut passes = |a: &mut _| {
        number += 1;
        cable.send(&frame(A, OUTSIDE, &[], number));
        eventually("a frame passes", || (next(a) == frame(A, OUTSIDE, &[], number)).then_some(()));
    };
    passes(&mut a);
    taut.kill_daemon();
    passes(&mut a);
    taut.restart_daemon();
    passes(&mut a);
    taut.ok(["daemon", "upgrade-fabric"]);
    passes(&mut a);
    let fabric = taut.fabric_pid();
    taut.kill_daemon();
    kill_9(fabric);
    until_detached(&cable.card);
    taut.restart_daemon();
    eventually("the program is attached again", || cable.state().contains("xdp").then_some(()));
}

#[test]
fn an_xdp_socket_that_cannot_be_is_refused_with_the_reason() {
    let taut = Taut::start().with_lan();
    let refused = |taut: &Taut, card: &str, options: &[&str], why: &str| {
        let told = taut.refused([&["uplink", "add", "sw", card][..], options].concat());
        assert!(told.contains(why) && told.contains("hint: "), "{told}");
    };
    let cable = Cable::plug();
    refused(&taut, &cable.card, &["--zero-copy"], "which its backend `packet` cannot");
    refused(&taut, &cable.card, &[&XDP[..], &["--zero-copy"]].concat(), "its driver has no zero copy");
    taut.ok(["uplink", "remove", &cable.card]);
    ip(&format!("link set {} mtu 9000", cable.card));
    refused(&taut, &cable.card, &XDP, "its MTU is 9000");
    taut.ok(["uplink", "remove", &cable.card]);
    ip(&format!("link set {} mtu 1500", cable.card));
    let veth = Veth::new(&taut, "numrxqueues 33 numtxqueues 33");
    set_queues(&veth, 33);
    refused(&taut, &veth.card, &XDP, "it has 33 receive queues");
    taut.ok(["uplink", "remove", &veth.card]);

    taut.ok([&["uplink", "add", "sw", &cable.card][..], &XDP].concat());
    let other = Taut::start().with_lan();
    refused(&other, &cable.card, &XDP, "another XDP program is attached to it");
}
