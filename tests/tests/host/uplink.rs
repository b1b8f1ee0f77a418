//! Uplinks: vSwitches that reach outside through a network card of the host.

use std::net::Ipv4Addr;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use taut_tests::{Cable, Netns, RawPort, Taut, eventually, ip, kill_9};
use taut_virtq::header::{GSO_UDP_L4, NEEDS_CSUM, NetHeader};

pub(crate) const A: [u8; 6] = [2, 0, 0, 0, 0, 0xa];
pub(crate) const B: [u8; 6] = [2, 0, 0, 0, 0, 0xb];
const C: [u8; 6] = [2, 0, 0, 0, 0, 0xc];
pub(crate) const OUTSIDE: [u8; 6] = [2, 0, 0, 0, 0, 0x99];
pub(crate) const ALL: [u8; 6] = [0xff; 6];

/// taut's filter in the output of tc(8): its priority.
const FILTER: &str = "pref 31349 bpf";

/// A VLAN tag of 802.1Q.
pub(crate) fn vlan(id: u8) -> [u8; 4] {
    [0x81, 0, 0, id]
}

/// A frame of a type that nobody answers, with these tags and a number.
pub(crate) fn frame(to: [u8; 6], from: [u8; 6], tags: &[[u8; 4]], number: u8) -> Vec<u8> {
    let mut frame = [&to[..], &from, &tags.concat(), &[0x88, 0xb5, number]].concat();
    frame.resize(64 + 4 * tags.len(), 0);
    frame
}

/// Two ports, without a VLAN and in VLAN 10, on a vSwitch with an uplink.
pub(crate) struct Rig {
    pub(crate) taut: Taut,
    pub(crate) cable: Cable,
    pub(crate) a: RawPort,
    pub(crate) b: RawPort,
}

impl Rig {
    fn new() -> Self {
        Self::with(&[])
    }

    /// Adds the uplink with these options.
    pub(crate) fn with(options: &[&str]) -> Self {
        Self::on(Taut::start(), options)
    }

    /// Adds the uplink with these options at a daemon.
    pub(crate) fn on(taut: Taut, options: &[&str]) -> Self {
        let taut = taut.with_lan();
        taut.ok(["portgroup", "create", "ten", "--vswitch", "sw", "--vlan", "10"]);
        let cable = Cable::plug();
        // Announcements would mix with the frames of the tests.
        taut.ok(["vswitch", "set", "sw", "--notify-switches", "off"]);
        taut.ok([&["uplink", "add", "sw", &cable.card][..], options].concat());
        let a = RawPort::attach(&taut, "a", "lan", A);
        let b = RawPort::attach(&taut, "b", "ten", B);
        Self { taut, cable, a, b }
    }

    fn drops(&self) -> Vec<(String, u64)> {
        let ports = self.taut.json(["port", "list"]);
        let owner = format!("uplink/{}", self.cable.card);
        let uplink = ports.as_array().unwrap().iter().find(|port| port["owner"] == *owner).cloned().unwrap();
        let drops = uplink["counters"]["tx_drops"].as_array().unwrap().clone();
        drops.iter().map(|drop| (drop[0].as_str().unwrap().to_owned(), drop[1].as_u64().unwrap())).collect()
    }
}

pub(crate) fn send(port: &mut RawPort, frame: &[u8]) {
    assert!(port.send(&NetHeader::default(), frame));
    port.flush();
}

/// Returns the next frame that a port receives.
pub(crate) fn next(port: &mut RawPort) -> Vec<u8> {
    eventually("the port receives a frame", || {
        port.await_frame(Duration::from_millis(20));
        let frame = port.receive().map(<[u8]>::to_vec);
        port.flush();
        frame
    })
}

#[test]
fn ports_reach_the_outside_and_are_reached_with_the_tags_of_their_vlans() {
    let Rig { taut: _taut, cable, mut a, mut b } = Rig::new();
    send(&mut a, &frame(OUTSIDE, A, &[], 1));
    assert_eq!(cable.receive(), frame(OUTSIDE, A, &[], 1));
    send(&mut b, &frame(OUTSIDE, B, &[], 2));
    assert_eq!(cable.receive(), frame(OUTSIDE, B, &[vlan(10)], 2));
    send(&mut b, &frame(ALL, B, &[], 3));
    assert_eq!(cable.receive(), frame(ALL, B, &[vlan(10)], 3));

    cable.send(&frame(A, OUTSIDE, &[], 4));
    assert_eq!(next(&mut a), frame(A, OUTSIDE, &[], 4));
    cable.send(&frame(B, OUTSIDE, &[vlan(10)], 5));
    assert_eq!(next(&mut b), frame(B, OUTSIDE, &[], 5));
    cable.send(&frame(ALL, OUTSIDE, &[vlan(10)], 6));
    assert_eq!(next(&mut b), frame(ALL, OUTSIDE, &[], 6));
    cable.send(&frame(A, OUTSIDE, &[], 7));
    assert_eq!(next(&mut a), frame(A, OUTSIDE, &[], 7), "nothing of VLAN 10 came before");
}

#[test]
fn frames_from_outside_reach_nobody_to_whom_they_do_not_belong() {
    let mut rig = Rig::new();
    let service = [0x88, 0xa8, 0, 10];
    let foreign = [
        frame(B, OUTSIDE, &[], 1),
        frame(B, OUTSIDE, &[vlan(20)], 2),
        frame(A, OUTSIDE, &[vlan(10)], 3),
        frame(B, OUTSIDE, &[vlan(10), vlan(10)], 4),
        frame(B, OUTSIDE, &[service], 5),
        frame(B, OUTSIDE, &[service, vlan(10)], 6),
        // From a port's own address, in its VLAN.
        frame(ALL, A, &[], 7),
        frame(ALL, B, &[vlan(10)], 8),
        // A switch outside does not know the address.
        frame([2, 0, 0, 0, 0, 0x77], OUTSIDE, &[], 9),
        // An address that no switch forwards.
        frame([1, 0x80, 0xc2, 0, 0, 0], OUTSIDE, &[], 10),
    ];
    for frame in &foreign {
        rig.cable.send(frame);
    }
    rig.cable.send(&frame(A, OUTSIDE, &[], 11));
    rig.cable.send(&frame(B, OUTSIDE, &[vlan(10)], 12));
    assert_eq!(next(&mut rig.a), frame(A, OUTSIDE, &[], 11));
    assert_eq!(next(&mut rig.b), frame(B, OUTSIDE, &[], 12));
    let expected = [("unknown-unicast", 4), ("reserved-address", 1), ("stacked-tag", 3), ("own-source", 2)];
    assert_eq!(rig.drops(), expected.map(|(reason, count)| (reason.to_owned(), count)));
    assert_eq!(rig.cable.receive_within(Duration::from_millis(100)), None, "nothing goes back");
}

/// Returns a question for the Ethernet address of an address that this host has on another card.
fn question() -> Vec<u8> {
    let own = Command::new("ip").args(["-4", "-br", "addr"]).output().unwrap();
    let own = String::from_utf8_lossy(&own.stdout).into_owned();
    let mut own = own.split_whitespace().filter_map(|word| word.split_once('/')?.0.parse::<Ipv4Addr>().ok());
    let ip = own.find(|ip| !ip.is_loopback()).expect("the host has an IPv4 address");
    let mut question = [&ALL[..], &OUTSIDE, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1], &OUTSIDE, &[0; 4]].concat();
    question.extend([0; 6]);
    question.extend(ip.octets());
    question.resize(60, 0);
    question
}

#[test]
fn the_host_itself_does_not_see_the_frames_of_an_uplink() {
    let taut = Taut::start().with_lan();
    let cable = Cable::plug();
    ip(&format!("link set {} up", cable.card));
    let answers = |limit: u64| {
        cable.send(&question());
        let is_answer = |frame: &[u8]| frame[..6] == OUTSIDE && frame[12..14] == [8, 6];
        cable.receive_if(Duration::from_millis(limit), is_answer).is_some()
    };
    assert!(answers(5000), "without taut, the host answers for all its addresses");
    taut.ok(["uplink", "add", "sw", &cable.card]);
    assert!(!answers(300));
    taut.ok(["uplink", "remove", &cable.card]);
    assert!(answers(5000), "the card is the host's again");
}

#[test]
fn a_card_in_use_is_refused_and_left_as_it_is() {
    let taut = Taut::start().with_lan();
    let cable = Cable::plug();
    let card = &*cable.card;
    let bridge = card.replace("tt", "tb");
    let refused = |why: &str| {
        let before = cable.state();
        let told = taut.refused(["uplink", "add", "sw", card]);
        assert!(told.contains(why) && told.contains("hint: "), "{told}");
        assert_eq!(cable.state(), before);
    };
    ip(&format!("addr add 10.71.9.1/24 dev {card}"));
    refused("it has the address 10.71.9.1 of this host");
    ip(&format!("addr flush dev {card}"));
    ip(&format!("link add {bridge} type bridge"));
    ip(&format!("link set {card} master {bridge}"));
    refused(&format!("it is a part of the bridge `{bridge}`"));
    ip(&format!("link del {bridge}"));
    ip(&format!("link set {card} up"));
    ip(&format!("route add 10.71.8.0/24 dev {card}"));
    refused("it has a route of this host");
    ip("route del 10.71.8.0/24");
    let second = Cable::plug();
    ip(&format!("link set {} up", second.card));
    ip(&format!("route add 10.71.8.0/24 nexthop dev {} nexthop dev {card}", second.card));
    refused("it has a route of this host");
    ip("route del 10.71.8.0/24");
    ip(&format!("addr add 10.71.9.1/24 dev {card} label {card}:0"));
    refused("it has the address 10.71.9.1 of this host");
    ip(&format!("addr flush dev {card}"));
    let (above, elsewhere) = (card.replace("tt", "tm"), card.replace("tt", "tn"));
    ip(&format!("netns add {elsewhere}"));
    ip(&format!("link add {above} link {card} type macvlan"));
    refused(&format!("it carries the interface `{above}`"));
    ip(&format!("link set {above} netns {elsewhere}"));
    ip(&format!("-n {elsewhere} link set {above} up"));
    refused("it also receives for the address ");
    ip(&format!("netns del {elsewhere}"));
    ip(&format!("link set {card} down"));
    eventually("the kernel has removed the interface above", || {
        let told = taut.run(["uplink", "add", "sw", card]);
        told.success.then(|| taut.ok(["uplink", "remove", card]))
    });
    let other_name = card.replace("tt", "ta");
    ip(&format!("link property add dev {card} altname {other_name}"));
    let told = taut.refused(["uplink", "add", "sw", &other_name]);
    assert!(
        told.contains(&format!("`{other_name}` is an alternative name of the interface `{card}`")),
        "{told}"
    );

    let absent = taut.refused(["uplink", "add", "sw", "tt-absent"]);
    assert!(absent.contains("this host has no network interface `tt-absent`"), "{absent}");
    let loopback = taut.refused(["uplink", "add", "sw", "lo"]);
    assert!(loopback.contains("`lo` is no Ethernet interface"), "{loopback}");
    let nowhere = taut.refused(["uplink", "add", "nowhere", card]);
    assert!(nowhere.contains("vSwitch `nowhere`, which does not exist"), "{nowhere}");
    taut.ok(["uplink", "add", "sw", card]);
    let again = taut.refused(["uplink", "add", "sw", card]);
    assert!(again.contains("exists already"), "{again}");
    let used = taut.refused(["vswitch", "delete", "sw"]);
    assert!(used.contains(&format!("uplink/{card}")), "{used}");
}

/// Waits until the kernel has given a card that is up its own address, and returns its state.
fn settled(cable: &Cable) -> String {
    let off = std::fs::read_to_string(format!("/proc/sys/net/ipv6/conf/{}/disable_ipv6", cable.card));
    let has_ipv6 = off.is_ok_and(|off| off.trim() == "0");
    eventually("the card has settled", || {
        let state = cable.state();
        (!has_ipv6 || state.contains("fe80") && !state.contains("tentative")).then_some(state)
    })
}

#[test]
fn a_card_is_given_back_as_it_was() {
    let mut taut = Taut::start().with_lan();
    let (down, up) = (Cable::plug(), Cable::plug());
    taut.ok(["vswitch", "create", "other"]);
    // The first time that it is up, a card gets the kernel's default queue, for ever.
    for (cable, state) in [(&down, "up"), (&down, "down"), (&up, "up")] {
        ip(&format!("link set {} {state}", cable.card));
    }
    let before = [down.state(), settled(&up)];
    let add = |taut: &Taut| {
        taut.ok(["uplink", "add", "sw", &down.card]);
        taut.ok(["uplink", "add", "other", &up.card]);
    };
    add(&taut);
    assert!(up.state().contains("clsact") && up.state().contains(FILTER), "{}", up.state());
    // The note of what has to be put back survives the daemon.
    taut.kill_daemon();
    taut.restart_daemon();
    taut.ok(["uplink", "remove", &down.card]);
    assert_eq!(down.state(), before[0], "directly after the command");
    taut.ok(["uplink", "remove", &up.card]);
    assert_eq!((up.state(), up.promiscuity()), (before[1].clone(), 0));
    add(&taut);
    taut.shut_down();
    assert_eq!([down.state(), up.state()], before);
    taut.restart_daemon();
}

#[test]
fn filters_of_others_stay_when_a_card_is_given_back() {
    let taut = Taut::start().with_lan();
    let cable = Cable::plug();
    let card = &*cable.card;
    let tc = |words: &str| {
        assert!(Command::new("tc").args(words.split_whitespace()).status().unwrap().success(), "tc {words}");
    };
    let accept_all = "1,6 0 0 4294967295,";
    for before in [true, false] {
        if before {
            tc(&format!("qdisc add dev {card} clsact"));
        }
        taut.ok(["uplink", "add", "sw", card]);
        if !before {
            let filter = ["filter", "add", "dev", card, "egress", "bpf", "bytecode", accept_all];
            assert!(Command::new("tc").args(filter).status().unwrap().success());
        }
        taut.ok(["uplink", "remove", card]);
        let state = cable.state();
        assert!(state.contains("clsact") && !state.contains(FILTER), "{before}: {state}");
        assert_eq!(state.contains("bytecode"), !before, "{state}");
        tc(&format!("qdisc del dev {card} clsact"));
    }
}

#[test]
fn a_card_with_another_name_and_address_is_given_back_before_another_card_takes_its_place() {
    let taut = Taut::start().with_lan();
    let cable = Cable::plug();
    let (card, renamed) = (&*cable.card, cable.card.replace("tt", "tr"));
    taut.ok(["uplink", "add", "sw", card]);
    for words in ["down", "address 02:00:00:00:00:77", &format!("name {renamed}")] {
        ip(&format!("link set {card} {words}"));
    }
    ip(&format!("link set {renamed} up"));
    let reason = || taut.json(["uplink", "show", card])["status"]["reason"].as_str().map(str::to_owned);
    eventually("that its card is gone is told", || reason()?.contains("no network interface").then_some(()));
    assert!(Cable::state_of(&renamed).contains(FILTER), "nobody else sees its frames meanwhile");

    let peer = card.replace("tt", "tp");
    ip(&format!("link add {card} type veth peer name {peer}"));
    ip(&format!("link set {peer} up"));
    eventually("the other card takes its place", || reason().is_none().then_some(()));
    let state = Cable::state_of(&renamed);
    assert!(!state.contains("clsact") && !state.contains(",UP"), "the first one is given back: {state}");
    taut.ok(["uplink", "remove", card]);
    ip(&format!("link del {card}"));
}

#[test]
fn an_uplink_can_move_to_another_vswitch() {
    let mut rig = Rig::new();
    rig.taut.ok(["vswitch", "create", "other", "--notify-switches", "off"]);
    rig.taut.ok(["portgroup", "create", "there", "--vswitch", "other"]);
    let mut c = RawPort::attach(&rig.taut, "c", "there", C);
    let told = rig.taut.ok(["uplink", "set", &rig.cable.card, "--vswitch", "other"]);
    assert!(told.contains("of vSwitch other, link up"), "{told}");
    rig.cable.send(&frame(ALL, OUTSIDE, &[], 1));
    assert_eq!(next(&mut c), frame(ALL, OUTSIDE, &[], 1));
    send(&mut rig.a, &frame(OUTSIDE, A, &[], 2));
    send(&mut c, &frame(OUTSIDE, C, &[], 3));
    assert_eq!(rig.cable.receive(), frame(OUTSIDE, C, &[], 3), "nothing from the first vSwitch");
    assert_eq!(rig.a.receive(), None);
}

/// A tagged frame to port `b` with a number in four bytes, and a pattern behind it.
pub(crate) fn numbered(number: u32) -> [Vec<u8>; 2] {
    let payload = [&number.to_be_bytes()[..], &[number as u8; 80]].concat();
    let sent = [&B[..], &OUTSIDE, &vlan(10), &[0x88, 0xb5], &payload].concat();
    let received = [&B[..], &OUTSIDE, &[0x88, 0xb5], &payload].concat();
    [sent, received]
}

/// Sends so many [`numbered`] frames, two each millisecond, while `disturb` runs, and checks that
/// port `b` receives all of them whole. Frames may come twice, because the frames of the burst in
/// which a fabric dies are repeated.
pub(crate) fn pass_while(cable: &Cable, b: &mut RawPort, count: u32, disturb: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..count {
                cable.send(&numbered(number)[0]);
                if number % 2 == 1 {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        });
        scope.spawn(disturb);
        let mut expected = 0;
        while expected < count {
            let got = next(b);
            let number = u32::from_be_bytes(got[14..18].try_into().unwrap());
            assert_eq!(got, numbered(number)[1], "frame {number} is whole");
            assert!(number <= expected, "{number} after {expected} frames");
            expected = expected.max(number + 1);
        }
    });
}

#[test]
fn no_frame_is_lost_or_damaged_when_a_fabric_dies_or_is_upgraded() {
    let Rig { taut, cable, mut b, .. } = Rig::new();
    pass_while(&cable, &mut b, 3000, || {
        std::thread::sleep(Duration::from_millis(300));
        kill_9(taut.fabric_pid());
        std::thread::sleep(Duration::from_millis(500));
        taut.ok(["daemon", "upgrade-fabric"]);
    });
}

#[test]
fn a_fabric_that_stands_still_loses_no_frame_for_which_there_was_room() {
    let Rig { taut, cable, mut b, .. } = Rig::new();
    let fabric = Pid::from_raw(taut.fabric_pid()).expect("a process");
    kill_process(fabric, Signal::STOP).unwrap();
    // More than the ring has slots, so that each look sees lost frames only.
    for number in 0..300 {
        cable.send(&numbered(number)[0]);
    }
    for number in 300..330 {
        std::thread::sleep(Duration::from_millis(100));
        cable.send(&numbered(number)[0]);
    }
    kill_process(fabric, Signal::CONT).unwrap();
    for number in 0..255 {
        assert_eq!(next(&mut b), numbered(number)[1]);
    }
    assert!(!taut.ok(["events"]).contains("receives nothing any more"));
}

#[test]
fn a_frame_that_cannot_be_described_does_not_make_an_uplink_deaf() {
    let taut = Taut::start().with_lan();
    let cable = Cable::plug_segmenting();
    taut.ok(["uplink", "add", "sw", &cable.card]);
    let mut a = RawPort::attach(&taut, "a", "lan", A);
    // A UDP datagram that would have to be fragmented (`VIRTIO_NET_HDR_GSO_UDP`).
    let mut datagram = [&A[..], &OUTSIDE, &[8, 0, 0x45, 0]].concat();
    datagram.extend(2028_u16.to_be_bytes());
    datagram.extend([0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    datagram.extend([0, 9, 0, 9, 7, 216, 0, 0]);
    datagram.resize(14 + 2028, 7);
    let [length, size] = [42_u16, 1400].map(u16::to_ne_bytes);
    let header = [1, 3, length[0], length[1], size[0], size[1], 34, 0, 6, 0];
    cable.send_segmenting(header, &datagram);
    eventually("frames are received again", || {
        cable.send(&frame(A, OUTSIDE, &[], 1));
        a.await_frame(Duration::from_millis(100));
        a.receive().map(drop)
    });
    // Some kernels go on after such a frame: Debian's 6.1.192 and 6.12.117.
    eventually("the loss is told", || {
        let lost = taut.json(["uplink", "show", &cable.card])["status"]["lost"].as_u64();
        let was_deaf = taut.ok(["events"]).contains("its socket receives nothing any more");
        (was_deaf || lost >= Some(1)).then_some(())
    });
}

#[test]
fn a_long_datagram_leaves_in_segments_whoever_makes_them() {
    const HEADERS: usize = 42;
    let Rig { taut: _taut, cable, mut a, .. } = Rig::new();
    // Ethernet, IPv4 and UDP with 3,000 bytes; the checksum of UDP is that of its pseudo header.
    let mut datagram = [&OUTSIDE[..], &A, &[8, 0]].concat();
    datagram.extend([0x45, 0, 0x0b, 0xd4, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    datagram.extend([0x30, 0x39, 0, 9, 0x0b, 0xc0, 0, 0]);
    datagram.resize(HEADERS + 3000, 0x33);
    let header = NetHeader {
        flags: NEEDS_CSUM,
        gso_type: GSO_UDP_L4,
        gso_size: 1000,
        hdr_len: HEADERS as u16,
        csum_start: 34,
        csum_offset: 6,
        ..NetHeader::default()
    };
    assert!(a.send(&header, &datagram));
    a.flush();
    let segments: Vec<usize> = (0..3).map(|_| cable.receive().len()).collect();
    assert_eq!(segments, [HEADERS + 1000; 3]);
}

#[test]
fn an_uplink_survives_the_deaths_of_fabric_and_daemon_and_its_card() {
    let Rig { mut taut, cable, mut a, .. } = Rig::new();
    let mut number = 0;
    let mut passes = |a: &mut RawPort| {
        number += 1;
        cable.send(&frame(A, OUTSIDE, &[], number));
        eventually("a frame passes", || (next(a) == frame(A, OUTSIDE, &[], number)).then_some(()));
    };
    passes(&mut a);
    taut.kill_daemon();
    passes(&mut a);
    taut.restart_daemon();
    passes(&mut a);
    let before = taut.fabric_pid();
    kill_9(before);
    eventually("another fabric runs", || {
        let pid = taut.json(["daemon", "show"])["fabric_pid"].as_i64().unwrap_or(0);
        (pid != 0 && pid != i64::from(before)).then_some(())
    });
    let owner = format!("uplink/{}", cable.card);
    eventually("the uplink is served again", || {
        let ports = taut.json(["port", "list"]);
        let uplink = ports.as_array()?.iter().find(|port| port["owner"] == *owner).cloned()?;
        (uplink["link"] == "up").then_some(())
    });
    taut.ok(["daemon", "upgrade-fabric"]);

    let card = cable.card.clone();
    let set = |state: &str| ip(&format!("link set {card} {state}"));
    let reason = || taut.json(["uplink", "show", &card])["status"]["reason"].as_str().map(str::to_owned);
    set("down");
    eventually("that it is down is told", || reason()?.contains("set its interface down").then_some(()));
    set("up");
    eventually("it goes on by itself", || reason().is_none().then_some(()));
    drop(cable);
    eventually("that the card is gone is told", || {
        let uplink = taut.json(["uplink", "show", &card]);
        uplink["status"]["reason"]
            .as_str()
            .is_some_and(|why| why.contains("no network interface"))
            .then_some(())
    });
}

#[test]
fn tcp_passes_an_uplink_in_both_directions() {
    let taut = Taut::start().with_lan();
    let outside = Netns { name: Netns::name(&taut, "out"), ip: "10.71.0.1".to_owned() };
    let card = format!("tv{:x}", std::process::id());
    let name = &outside.name;
    ip(&format!("netns add {name}"));
    ip(&format!("link add {card} type veth peer name eth0 netns {name}"));
    ip(&format!("-n {name} addr add 10.71.0.1/24 dev eth0"));
    ip(&format!("-n {name} link set eth0 up"));
    taut.ok(["uplink", "add", "sw", &card]);
    let inside = Netns::attach(&taut, "in", "lan", "10.71.0.2");
    inside.reaches(&outside.ip, 20);
    let server = outside.iperf3_server();
    for direction in [&[][..], &["-R"]] {
        inside.streams(&outside.ip, direction);
    }
    drop(server);
    ip(&format!("netns del {name}"));
}
