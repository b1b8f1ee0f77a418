//! Teams of uplinks: which one a port uses, and what happens when a link is lost.

use std::time::{Duration, Instant};

use taut_tests::{Cable, RawPort, Taut, eventually, ip};
use taut_virtq::header::NetHeader;

const A: [u8; 6] = [2, 0, 0, 0, 0, 0xa];
const OUTSIDE: [u8; 6] = [2, 0, 0, 0, 0, 0x99];
const ALL: [u8; 6] = [0xff; 6];
/// Type of frames that nobody answers.
const TYPE: [u8; 2] = [0x88, 0xb5];
/// Type of the frames by which physical switches are told where an address is.
const RARP: [u8; 2] = [0x80, 0x35];

/// A frame with a number.
fn frame(to: [u8; 6], from: [u8; 6], number: u32) -> Vec<u8> {
    let mut frame = [&to[..], &from, &TYPE, &number.to_be_bytes()].concat();
    frame.resize(64, 0);
    frame
}

fn number(frame: &[u8]) -> u32 {
    u32::from_be_bytes(frame[14..18].try_into().unwrap())
}

/// Frames of a port that an uplink has sent: the numbers of its own, and announcements of it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sent {
    numbers: Vec<u32>,
    announcements: usize,
}

/// A port on a vSwitch with two uplinks, of which the second one is in standby.
struct Rig {
    taut: Taut,
    cables: [Cable; 2],
    a: RawPort,
}

impl Rig {
    fn new() -> Self {
        let taut = Taut::start().with_lan();
        let cables = [Cable::plug(), Cable::plug()];
        for cable in &cables {
            taut.ok(["uplink", "add", "sw", &cable.card]);
        }
        taut.ok(["vswitch", "set", "sw", "--active", &cables[0].card, "--standby", &cables[1].card]);
        let a = RawPort::attach(&taut, "a", "lan", A);
        let rig = Self { taut, cables, a };
        rig.await_announcement(0);
        rig
    }

    /// Waits until the port is announced at an uplink.
    fn await_announcement(&self, uplink: usize) {
        let is_announcement = |frame: &[u8]| frame[12..14] == RARP && frame[6..12] == A;
        let announced = self.cables[uplink].receive_if(Duration::from_secs(10), is_announcement);
        assert!(announced.is_some(), "port a is announced at uplink {uplink}");
    }

    fn set_carrier(&self, uplink: usize, state: &str) {
        ip(&format!("link set {} carrier {state}", self.cables[uplink].card));
    }

    fn send(&mut self, frame: &[u8]) {
        assert!(self.a.send(&NetHeader::default(), frame));
        self.a.flush();
    }

    /// Frames that an uplink has sent from the port.
    fn sent(&self, uplink: usize) -> Sent {
        let is_ours = |frame: &[u8]| frame[6..12] == A;
        let mut sent = Sent::default();
        while let Some(frame) = self.cables[uplink].receive_if(Duration::from_millis(50), is_ours) {
            match frame[12..14].try_into().unwrap() {
                TYPE => sent.numbers.push(number(&frame)),
                RARP => sent.announcements += 1,
                _ => {}
            }
        }
        sent
    }

    /// Numbers of the frames that the port receives until there are no more.
    fn received(&mut self) -> Vec<u32> {
        let mut numbers = Vec::new();
        let mut silent = Instant::now();
        while silent.elapsed() < Duration::from_millis(100) {
            self.a.await_frame(Duration::from_millis(10));
            while let Some(frame) = self.a.receive() {
                if frame[12..14] == TYPE {
                    numbers.push(number(frame));
                }
                silent = Instant::now();
            }
            self.a.flush();
        }
        numbers
    }
}

/// Sends a frame each millisecond while `act` runs, and for a while longer. Returns what has left
/// by each uplink.
fn stream(rig: &mut Rig, act: impl FnOnce(&Rig)) -> [Sent; 2] {
    let count = 600;
    let mut act = Some(act);
    for number in 0..count {
        if number == 100
            && let Some(act) = act.take()
        {
            act(rig);
        }
        rig.send(&frame(OUTSIDE, A, number));
        std::thread::sleep(Duration::from_millis(1));
    }
    [rig.sent(0), rig.sent(1)]
}

#[test]
fn a_port_leaves_an_uplink_without_a_link_and_comes_back() {
    let mut rig = Rig::new();
    for daemon in [true, false] {
        if !daemon {
            rig.taut.kill_daemon();
        }
        let [before, after] = stream(&mut rig, |rig| rig.set_carrier(0, "off"));
        let (last, first) = (before.numbers[before.numbers.len() - 1], after.numbers[0]);
        assert!(first - last < 150, "frames {last} to {first} are lost, 1 ms each");
        assert_eq!(after.numbers, (first..600).collect::<Vec<_>>());
        assert_eq!((before.announcements, after.announcements), (0, 1));

        let [back, rest] = stream(&mut rig, |rig| rig.set_carrier(0, "on"));
        let all = [&rest.numbers[..], &back.numbers].concat();
        assert_eq!(all, (0..600).collect::<Vec<_>>(), "the way back loses nothing");
        assert!(!back.numbers.is_empty(), "it is back");
        assert_eq!((back.announcements, rest.announcements), (1, 0));
    }
    rig.taut.restart_daemon();
    let count = |event: &str| rig.taut.ok(["events"]).matches(event).count();
    std::thread::sleep(Duration::from_millis(1500));
    // The first daemon has told of the first loss. A short loss may be over before it is seen.
    let [down, up] = ["uplink.down", "uplink.up"].map(count);
    rig.set_carrier(0, "off");
    eventually("the loss is an event", || (count("uplink.down") > down).then_some(()));
    rig.set_carrier(0, "on");
    eventually("the return is an event", || (count("uplink.up") > up).then_some(()));
}

#[test]
fn a_switch_that_floods_and_reflects_causes_no_duplicates() {
    let mut rig = Rig::new();
    for number in 0..1000 {
        for cable in &rig.cables {
            cable.send(&frame(if number % 2 == 0 { A } else { ALL }, OUTSIDE, number));
            // What the port has sent comes back at all uplinks.
            cable.send(&frame(ALL, A, 100_000 + number));
        }
        if number % 50 == 49 {
            std::thread::sleep(Duration::from_millis(5));
        }
        if number % 200 == 199 {
            let expected: Vec<u32> = (number - 199..=number).collect();
            assert_eq!(rig.received(), expected);
        }
    }
    assert_eq!([rig.sent(0), rig.sent(1)], [Sent::default(), Sent::default()], "nothing goes back");
}

#[test]
fn each_policy_uses_the_uplinks_that_it_names() {
    let mut rig = Rig::new();
    let [first, second] = [0, 1].map(|at: usize| rig.cables[at].card.clone());
    let mut passes = |words: &[&str], expected: [bool; 2]| {
        rig.taut.ok(["portgroup", "set", "lan"].into_iter().chain(words.iter().copied()));
        let uses = eventually("the change is in force", || {
            rig.sent(0);
            rig.sent(1);
            for host in 0..32_u8 {
                // An IPv4 packet without contents, by whose last octets a hash may choose.
                let mut packet = [&OUTSIDE[..], &A, &[8, 0, 0x45], &[0; 13], &[0, host, 0, 0, 0, 1]].concat();
                packet.resize(64, 0);
                rig.send(&packet);
            }
            let is_ours = |frame: &[u8]| frame[12..14] == [8, 0] && frame[6..12] == A;
            let uses = [0, 1].map(|at: usize| rig.cables[at].receive_if(Duration::from_millis(100), is_ours));
            let uses = uses.map(|frame| frame.is_some());
            (uses == expected).then_some(uses)
        });
        assert_eq!(uses, expected);
    };
    passes(&["--team-policy", "explicit", "--active", &format!("{second},{first}")], [false, true]);
    passes(&["--team-policy", "explicit", "--active", &first], [true, false]);
    passes(&["--team-policy", "ip-hash", "--active", "all"], [true, true]);
    passes(&["--inherit-teaming"], [true, false]);
    let removal = rig.taut.refused(["uplink", "remove", &first]);
    assert!(
        removal.contains(&format!("the teaming of vSwitch `sw` names the uplink `{first}`")),
        "{removal}"
    );
    let unknown = rig.taut.refused(["vswitch", "set", "sw", "--standby", "eth9"]);
    assert!(unknown.contains("names `eth9`, which is no uplink of vSwitch `sw`"), "{unknown}");
}

/// Lets time pass in which the port sends a frame each 10 ms, and a gateway answers at the uplinks
/// whose path is alive. Returns how many frames have left by each uplink.
fn pass(rig: &mut Rig, time: Duration, alive: [bool; 2]) -> [usize; 2] {
    let mut left = [0; 2];
    let begun = Instant::now();
    while begun.elapsed() < time {
        rig.send(&frame(OUTSIDE, A, 0));
        for (uplink, cable) in rig.cables.iter().enumerate() {
            while let Some(frame) = cable.receive_if(Duration::ZERO, |_| true) {
                left[uplink] += usize::from(frame[6..12] == A && frame[12..14] == TYPE);
                if let Some(answer) =
                    Cable::answer_of(&frame, [10, 9, 0, 1], OUTSIDE).filter(|_| alive[uplink])
                {
                    cable.send(&answer);
                }
            }
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    left
}

#[test]
fn a_path_that_is_dead_is_left_although_the_link_is_up() {
    let mut rig = Rig::new();
    rig.taut.ok(["vswitch", "set", "sw", "--probe", "10.9.0.1"]);
    let [before, wrong] = pass(&mut rig, Duration::from_secs(3), [true, true]);
    assert!(before > 0 && wrong == 0, "{before}, {wrong}");
    pass(&mut rig, Duration::from_secs(4), [false, true]);
    let [wrong, after] = pass(&mut rig, Duration::from_secs(1), [false, true]);
    assert!(after > 0 && wrong == 0, "{wrong}, {after}");
    let card = rig.cables[0].card.clone();
    let status = rig.taut.json(["uplink", "show", &card])["status"].clone();
    let reason = status["reason"].as_str().unwrap_or_default();
    assert!(status["link"] == "up" && reason.contains("its cable leads nowhere"), "{status}");
    let events = rig.taut.ok(["events"]);
    assert!(events.contains("uplink.no-path"), "{events}");

    rig.taut.ok(["vswitch", "set", "sw", "--probe", "off"]);
    let [back, _] = pass(&mut rig, Duration::from_secs(1), [false, false]);
    assert!(back > 0);
    eventually("nothing is wrong any more", || {
        rig.taut.json(["uplink", "show", &card])["status"]["reason"].is_null().then_some(())
    });
    let words =
        ["vswitch", "set", "sw", "--standby", "none", "--team-policy", "ip-hash", "--probe", "beacon"];
    let refusal = rig.taut.refused(words);
    assert!(refusal.contains("probes the paths of its uplinks"), "{refusal}");
}

/// A card, and a network namespace at the other end of its cable.
struct Far {
    card: String,
    namespace: String,
}

impl Far {
    fn new(number: usize) -> Self {
        let (card, namespace) = (
            format!("tw{:x}-{number}", std::process::id()),
            format!("taut-far{:x}-{number}", std::process::id()),
        );
        ip(&format!("netns add {namespace}"));
        ip(&format!("link add {card} type veth peer name eth0 netns {namespace}"));
        ip(&format!("-n {namespace} link set eth0 up"));
        Self { card, namespace }
    }

    fn address(&self, change: &str) {
        ip(&format!("-n {} addr {change} fd00::1/64 dev eth0 nodad", self.namespace));
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        // Its end of the cable, and so the card, go with it. This may be the end of a failed test.
        let _ = std::process::Command::new("ip").args(["netns", "del", &self.namespace]).status();
    }
}

#[test]
fn linux_as_a_gateway_answers_each_uplink_by_neighbour_discovery() {
    let far = [0, 1].map(Far::new);
    let taut = Taut::start().with_lan();
    for end in &far {
        end.address("add");
        taut.ok(["uplink", "add", "sw", &end.card]);
    }
    taut.ok(["vswitch", "set", "sw", "--probe", "fd00::1"]);
    assert_eq!(taut.json(["vswitch", "show", "sw"])["spec"]["teaming"]["probe"], "fd00::1");
    let reason = |end: &Far| taut.json(["uplink", "show", &end.card])["status"]["reason"].clone();
    // Of a fabric that hears nobody, none is lost; so one that does not answer shows that the other
    // one does.
    for (silent, answers) in [(&far[0], &far[1]), (&far[1], &far[0])] {
        silent.address("del");
        eventually("the uplink without an answer is left", || {
            reason(silent).as_str()?.contains("its cable leads nowhere").then_some(())
        });
        assert!(reason(answers).is_null());
        silent.address("add");
        eventually("it is used again", || reason(silent).is_null().then_some(()));
    }
}

#[test]
fn frames_that_cross_the_edge_are_counted_as_they_are_on_the_wire() {
    let mut rig = Rig::new();
    let b = RawPort::attach(&rig.taut, "b", "lan", [2, 0, 0, 0, 0, 0xb]);
    rig.sent(0);
    let card = rig.cables[0].card.clone();
    let counted = |rig: &Rig| {
        let ports = rig.taut.json(["port", "list"]);
        let of = |owner: String| {
            let port = ports.as_array().unwrap().iter().find(|port| port["owner"] == *owner).unwrap();
            ["wire_tx_bytes", "wire_rx_bytes"].map(|word| port["counters"][word].as_u64().unwrap())
        };
        [of("external/a".to_owned()), of(format!("uplink/{card}"))]
    };
    let before = counted(&rig);
    for number in 0..10 {
        rig.send(&frame(OUTSIDE, A, number));
        rig.send(&frame(b.mac, A, number));
    }
    assert_eq!(rig.sent(0).numbers, (0..10).collect::<Vec<_>>());
    for number in 0..5 {
        rig.cables[0].send(&frame(A, OUTSIDE, number));
    }
    assert_eq!(rig.received().len(), 5);
    eventually("all are counted", || {
        let now = counted(&rig);
        // 64 bytes, and 24 around them.
        let expected = before.map(|[sent, received]| [sent + 10 * 88, received + 5 * 88]);
        let rest = now[1][1] - before[1][1];
        (now[0] == expected[0] && now[1][0] == expected[1][0] && rest >= 5 * 88).then_some(())
    });
}
