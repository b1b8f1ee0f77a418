//! Snooping of IGMP and MLD: which ports take the frames of a multicast group.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use taut_tests::{Cable, Netns, RawPort, Taut, eventually, ip};
use taut_virtq::header::NetHeader;

const A: [u8; 6] = [2, 0, 0, 0, 0, 0xa];
const B: [u8; 6] = [2, 0, 0, 0, 0, 0xb];
const GROUP: [u8; 4] = [239, 1, 1, 1];
const GROUP_MAC: [u8; 6] = [1, 0, 0x5e, 1, 1, 1];
const ALL_HOSTS: [u8; 4] = [224, 0, 0, 1];
const IGMP: u8 = 2;
const UDP: u8 = 17;

/// Joins 239.1.1.1 and ff05::1234, prints what arrives for port 5000, and leaves at a line of
/// input.
const MEMBER: &str = r#"
import select, socket, struct, sys
index = socket.if_nametoindex("taut0")
v4 = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
v4.bind(("", 5000))
v6 = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
v6.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
v6.bind(("", 5000))
one = struct.pack("=4s4si", socket.inet_aton("239.1.1.1"), b"\0" * 4, index)
two = socket.inet_pton(socket.AF_INET6, "ff05::1234") + struct.pack("=I", index)
v4.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, one)
v6.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, two)
print("joined", flush=True)
while True:
    for ready in select.select([v4, v6, sys.stdin], [], [])[0]:
        if ready is sys.stdin:
            if not sys.stdin.readline():
                sys.exit()
            v4.setsockopt(socket.IPPROTO_IP, socket.IP_DROP_MEMBERSHIP, one)
            v6.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_LEAVE_GROUP, two)
            print("left", flush=True)
        else:
            print("v4" if ready is v4 else "v6", ready.recv(2000).decode(), flush=True)
"#;

/// Sends a datagram to both groups.
const SENDER: &str = r#"
import socket, struct, sys
index = socket.if_nametoindex("taut0")
v4 = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
v4.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, struct.pack("=4s4si", b"\0" * 4, b"\0" * 4, index))
v4.sendto(sys.argv[1].encode(), ("239.1.1.1", 5000))
v6 = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
v6.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 8)
v6.sendto(sys.argv[1].encode(), ("ff05::1234", 5000, 0, index))
"#;

/// An Internet checksum.
fn sum(bytes: &[u8]) -> [u8; 2] {
    let words =
        bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u32::from(*low)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    (!(sum as u16)).to_be_bytes()
}

/// A frame to a group with an IPv4 packet.
fn ipv4(from: [u8; 6], to: [u8; 4], protocol: u8, body: &[u8]) -> Vec<u8> {
    let mut frame = [&[1, 0, 0x5e, to[1] & 0x7f, to[2], to[3]][..], &from, &[8, 0]].concat();
    let mut header =
        vec![0x45, 0, 0, 20 + body.len() as u8, 0, 0, 0, 0, 1, protocol, 0, 0, 10, 7, 0, from[5]];
    header.extend(to);
    let checksum = sum(&header);
    header[10..12].copy_from_slice(&checksum);
    frame.extend(header);
    frame.extend(body);
    frame.resize(frame.len().max(60), 0);
    frame
}

/// An IGMP message about [`GROUP`], or none.
fn igmp(from: [u8; 6], kind: u8, group: [u8; 4], to: [u8; 4]) -> Vec<u8> {
    let mut body = [&[kind, 0, 0, 0][..], &group].concat();
    let checksum = sum(&body);
    body[2..4].copy_from_slice(&checksum);
    ipv4(from, to, IGMP, &body)
}

/// A datagram to [`GROUP`] with a number.
fn datagram(from: [u8; 6], number: u8) -> Vec<u8> {
    ipv4(from, GROUP, UDP, &[0x13, 0x88, 0x13, 0x88, 0, 9, 0, 0, number])
}

fn is_datagram(frame: &[u8]) -> bool {
    frame[..6] == GROUP_MAC && frame[12..14] == [8, 0] && frame[23] == UDP
}

/// Returns the type of an IGMP message; queries have an option in the IP header.
fn igmp_type(frame: &[u8]) -> Option<u8> {
    let is_igmp = frame[12..14] == [8, 0] && frame[23] == IGMP;
    is_igmp.then(|| frame[14 + 4 * usize::from(frame[14] & 15)])
}

fn send(port: &mut RawPort, frame: &[u8]) {
    assert!(port.send(&NetHeader::default(), frame));
    port.flush();
}

/// Returns the frames of a port until there are none for `silence`.
fn received(port: &mut RawPort, silence: Duration) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let mut since = Instant::now();
    while since.elapsed() < silence {
        port.await_frame(Duration::from_millis(10));
        while let Some(frame) = port.receive() {
            frames.push(frame.to_vec());
            since = Instant::now();
        }
        port.flush();
    }
    frames
}

/// Number of datagrams that a port has received.
fn datagrams(port: &mut RawPort) -> usize {
    received(port, Duration::from_millis(200)).iter().filter(|frame| is_datagram(frame)).count()
}

/// Two ports on a vSwitch with snooping and an uplink. Neither has joined a group.
struct Rig {
    taut: Taut,
    cable: Cable,
    a: RawPort,
    b: RawPort,
}

impl Rig {
    fn new() -> Self {
        let taut = Taut::start().with_lan();
        let cable = Cable::plug();
        taut.ok(["uplink", "add", "sw", &cable.card]);
        taut.ok(["vswitch", "set", "sw", "--multicast", "snooping"]);
        let [a, b] = [("a", A), ("b", B)].map(|(name, mac)| RawPort::attach(&taut, name, "lan", mac));
        let mut rig = Self { taut, cable, a, b };
        rig.await_knowledge();
        rig
    }

    /// Waits until it is known which groups the ports have joined: no more than seconds after they
    /// were asked twice.
    fn await_knowledge(&mut self) {
        eventually("frames of a group that nobody has joined end", || {
            send(&mut self.a, &datagram(A, 0));
            (datagrams(&mut self.b) == 0).then_some(())
        });
        eventually("the same at the other port", || {
            send(&mut self.b, &datagram(B, 0));
            (datagrams(&mut self.a) == 0).then_some(())
        });
        self.cable.drain();
    }

    /// Groups with their members.
    fn groups(&self) -> Vec<(String, Vec<String>)> {
        let shown = self.taut.json(["vswitch", "show", "sw"]);
        let groups = shown["status"]["multicast"]["groups"].as_array().unwrap();
        let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
        let members =
            |group: &serde_json::Value| group["members"].as_array().unwrap().iter().map(text).collect();
        groups.iter().map(|group| (text(&group["group"]), members(group))).collect()
    }
}

/// A namespace whose kernel is a member of both groups.
struct Member {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Member {
    fn join(netns: &Netns) -> Self {
        let mut command = netns.command("python3");
        let command = command.args(["-c", MEMBER]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            BufReader::new(output).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        let member = Self { child, input, lines };
        assert_eq!(member.line().as_deref(), Some("joined"));
        member
    }

    fn line(&self) -> Option<String> {
        self.lines.recv_timeout(Duration::from_secs(10)).ok()
    }

    /// Returns the lines that come within a while.
    fn lines(&self) -> Vec<String> {
        std::thread::sleep(Duration::from_millis(300));
        let mut lines: Vec<_> = self.lines.try_iter().collect();
        lines.sort();
        lines
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a datagram to both groups, or returns why not.
fn send_both(netns: &Netns, text: &str) -> Result<(), String> {
    let sent = netns.command("python3").args(["-c", SENDER, text]).output().unwrap();
    if sent.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&sent.stderr).into_owned()) }
}

#[test]
fn kernels_join_and_leave_and_others_get_no_frames() {
    let mut rig = Rig::new();
    let [first, second] = [("m", "10.7.0.1"), ("s", "10.7.0.2")]
        .map(|(suffix, ip)| Netns::attach(&rig.taut, suffix, "lan", ip));
    let mut member = Member::join(&first);
    let owner = format!("netns/{}", first.name);
    eventually("both groups are listed", || {
        let groups = rig.groups();
        let has = |group: &str| groups.contains(&(group.to_owned(), vec![owner.clone()]));
        (has("239.1.1.1") && has("ff05::1234")).then_some(())
    });
    let shown = rig.taut.ok(["vswitch", "show", "sw"]);
    assert!(shown.contains(&format!("239.1.1.1: {owner}")), "{shown}");
    // An address of IPv6 is usable after a second or two only.
    eventually("datagrams of both kinds arrive", || {
        send_both(&second, "hello").ok()?;
        let lines = member.lines();
        ["v4 hello", "v6 hello"].iter().all(|text| lines.iter().any(|line| line == *text)).then_some(())
    });
    rig.cable.drain();
    received(&mut rig.a, Duration::from_millis(200));
    let count: u32 = 5;
    for number in 0..count {
        send_both(&second, &number.to_string()).unwrap();
    }
    let expected: Vec<String> = ["v4", "v6"]
        .iter()
        .flat_map(|kind| (0..count).map(move |number| format!("{kind} {number}")))
        .collect();
    assert_eq!(member.lines(), expected);
    let for_groups =
        |frame: &Vec<u8>| frame[..6] == GROUP_MAC || frame[..6] == [0x33, 0x33, 0, 0, 0x12, 0x34];
    let flooded = received(&mut rig.a, Duration::from_millis(300)).into_iter().filter(for_groups).count();
    assert_eq!(flooded, 0, "frames for groups that the port has not joined");
    // The uplink has all of them.
    let (mut v4, mut v6) = (0, 0);
    rig.cable.take_each(&mut vec![0; 2000], |frame| {
        v4 += u32::from(is_datagram(frame));
        v6 += u32::from(frame[..6] == [0x33, 0x33, 0, 0, 0x12, 0x34]);
    });
    assert_eq!((v4, v6), (count, count));
    // One from outside.
    member.lines();
    rig.cable.send(&datagram([2, 0, 0, 0, 0, 0x99], b'x'));
    assert_eq!(member.line().as_deref(), Some("v4 x"));
    assert_eq!(datagrams(&mut rig.a), 0);
    member.input.write_all(b"leave\n").unwrap();
    let begun = Instant::now();
    eventually("both groups are empty", || {
        rig.groups().iter().all(|(group, _)| group != "239.1.1.1" && group != "ff05::1234").then_some(())
    });
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    let frames = || {
        let ports = rig.taut.json(["port", "list"]);
        let found = ports.as_array().unwrap().iter().find(|port| port["owner"] == *owner).cloned().unwrap();
        found["counters"]["rx_multicast"].as_u64().unwrap()
    };
    // The port takes all frames until it is known what its guest has joined.
    eventually("the port gets no frames of a group that it has left", || {
        let before = frames();
        for _ in 0..100 {
            rig.cable.send(&datagram([2, 0, 0, 0, 0, 0x99], b'y'));
        }
        std::thread::sleep(Duration::from_millis(500));
        // Frames for all ports come at any time, such as a kernel's search for routers.
        (frames() - before < 50).then_some(())
    });
}

#[test]
fn reports_reach_routers_and_the_uplink_and_a_member_is_asked_before_it_is_taken_off() {
    let mut rig = Rig::new();
    send(&mut rig.a, &igmp(A, 0x16, GROUP, GROUP));
    let is_report = |frame: &[u8]| igmp_type(frame) == Some(0x16);
    assert!(rig.cable.receive_if(Duration::from_secs(2), is_report).is_some(), "the uplink has the report");
    assert!(!received(&mut rig.b, Duration::from_millis(200)).iter().any(|frame| is_report(frame)));
    send(&mut rig.b, &datagram(B, 1));
    assert_eq!(datagrams(&mut rig.a), 1);
    rig.cable.send(&datagram([2, 0, 0, 0, 0, 0x99], 2));
    assert_eq!((datagrams(&mut rig.a), datagrams(&mut rig.b)), (1, 0));

    // The other port becomes one of a router: it gets everything, and reports.
    send(&mut rig.b, &igmp(B, 0x11, [0; 4], ALL_HOSTS));
    let heard = received(&mut rig.a, Duration::from_millis(200));
    assert!(heard.iter().any(|frame| igmp_type(frame) == Some(0x11)), "the router's query");
    send(&mut rig.a, &igmp(A, 0x16, GROUP, GROUP));
    assert!(received(&mut rig.b, Duration::from_millis(200)).iter().any(|frame| is_report(frame)));
    rig.cable.send(&datagram([2, 0, 0, 0, 0, 0x99], 3));
    assert_eq!((datagrams(&mut rig.a), datagrams(&mut rig.b)), (1, 1));
    let routers = || rig.taut.json(["vswitch", "show", "sw"])["status"]["multicast"]["routers"].clone();
    eventually("the router is shown", || (routers() == serde_json::json!(["external/b"])).then_some(()));

    // A member that leaves is asked twice; it still answers, so it stays.
    send(&mut rig.a, &igmp(A, 0x17, GROUP, [224, 0, 0, 2]));
    let asked = |port: &mut RawPort, answer: bool| {
        let end = Instant::now() + Duration::from_millis(3500);
        let mut asked = 0;
        while Instant::now() < end {
            let frames = received(port, Duration::from_millis(50));
            let new = frames.iter().filter(|frame| igmp_type(frame) == Some(0x11)).count();
            if answer && new > 0 {
                send(port, &igmp(A, 0x16, GROUP, GROUP));
            }
            asked += new;
        }
        asked
    };
    assert_eq!(asked(&mut rig.a, true), 1);
    rig.cable.send(&datagram([2, 0, 0, 0, 0, 0x99], 4));
    assert_eq!(datagrams(&mut rig.a), 1);
    send(&mut rig.a, &igmp(A, 0x17, GROUP, [224, 0, 0, 2]));
    assert_eq!(asked(&mut rig.a, false), 2);
    rig.cable.send(&datagram([2, 0, 0, 0, 0, 0x99], 5));
    assert_eq!(datagrams(&mut rig.a), 0);

    // Without snooping everybody has everything.
    rig.taut.ok(["vswitch", "set", "sw", "--multicast", "basic"]);
    eventually("the port has the frames of a group that it has left", || {
        rig.cable.send(&datagram([2, 0, 0, 0, 0, 0x99], 6));
        (datagrams(&mut rig.a) == 1).then_some(())
    });
}

#[test]
fn a_new_fabric_loses_no_frame_of_a_group_and_learns_the_members_again() {
    let rig = Rig::new();
    let first = Netns::attach(&rig.taut, "m", "lan", "10.7.0.1");
    let member = Member::join(&first);
    let has_group = |rig: &Rig| rig.groups().iter().any(|(group, _)| group == "239.1.1.1");
    eventually("the group is listed", || has_group(&rig).then_some(()));
    rig.taut.ok(["daemon", "upgrade-fabric"]);
    // The frames go to all ports until it is known which groups these have joined, 12 s later.
    let (begun, mut lost) = (Instant::now(), 0);
    while begun.elapsed() < Duration::from_secs(18) {
        rig.cable.send(&datagram([2, 0, 0, 0, 0, 0x99], b'z'));
        lost += u32::from(member.lines.recv_timeout(Duration::from_millis(500)).is_err());
        std::thread::sleep(Duration::from_millis(80));
    }
    assert_eq!(lost, 0, "datagrams after the upgrade");
    assert!(has_group(&rig), "the kernel has answered");
}

#[test]
fn after_a_failover_guests_of_a_snooping_vswitch_are_asked_for_their_groups() {
    let taut = Taut::start().with_lan();
    let cables = [Cable::plug(), Cable::plug()];
    for cable in &cables {
        taut.ok(["uplink", "add", "sw", &cable.card]);
    }
    taut.ok(["vswitch", "set", "sw", "--active", &cables[0].card, "--standby", &cables[1].card]);
    let mut a = RawPort::attach(&taut, "a", "lan", A);
    let is_rarp = |frame: &[u8]| frame[12..14] == [0x80, 0x35];
    assert!(cables[0].receive_if(Duration::from_secs(10), is_rarp).is_some());
    let mut queries = || {
        let frames = received(&mut a, Duration::from_millis(1500));
        let is_mld = |frame: &&Vec<u8>| frame[12..14] == [0x86, 0xdd] && frame.get(62) == Some(&130);
        let is_igmp = |frame: &&Vec<u8>| igmp_type(frame) == Some(0x11);
        (frames.iter().filter(is_igmp).count(), frames.iter().filter(is_mld).count())
    };
    ip(&format!("link set {} carrier off", cables[0].card));
    assert!(cables[1].receive_if(Duration::from_secs(10), is_rarp).is_some());
    assert_eq!(queries(), (0, 0), "without snooping nobody is asked");
    taut.ok(["vswitch", "set", "sw", "--multicast", "snooping"]);
    assert_eq!(queries(), (2, 2), "the port is asked from now on");
    cables[0].drain();
    ip(&format!("link set {} carrier on", cables[0].card));
    assert!(cables[0].receive_if(Duration::from_secs(10), is_rarp).is_some());
    assert_eq!(queries(), (2, 2), "another uplink");
}
