//! Ports that send more than their uplink can take, under network I/O control.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use taut_tests::{RawPort, Taut, eventually};
use taut_virtq::header::{GSO_TCPV4, NEEDS_CSUM, NetHeader};

use crate::Outcome;
use crate::rates::stay_on;
use crate::rig::{OUTSIDE, Rig, number};

/// Classes of traffic, each with a port group of its own.
const CLASSES: [&str; 4] = ["management", "nfs", "iscsi", "virtualmachine"];
/// Ports that attack a reservation.
const ATTACKERS: u8 = 200;
/// Attackers of these that send frames which have yet to be segmented.
const SEGMENTED: u8 = 20;
/// Attackers of these that send short frames: many, for which the uplink waits for the processor,
/// and few.
const SHORT: [u8; 2] = [90, 4];
/// Time after which ports are where they belong.
const SETTLE: Duration = Duration::from_secs(1);
/// Attackers whose rings are filled before the next look at what has arrived outside.
const FILLED_BETWEEN_LOOKS: usize = 10;
/// Time between two frames of the port whose delay is measured.
const PAUSE: Duration = Duration::from_millis(1);
/// Preamble, checksum and gap around a frame.
const AROUND: u64 = 24;
/// Shortest frame without its checksum.
const SHORTEST: u64 = 60;

/// Kind of frame that a port sends.
#[derive(Debug, Clone, Copy)]
enum Length {
    /// 64 bytes with the checksum.
    Short,
    /// 1518 bytes with the checksum.
    Long,
    /// 45 segments of TCP in one frame.
    Segmented,
}

/// A port that sends without a pause.
struct Sender {
    port: RawPort,
    mac: [u8; 6],
    header: NetHeader,
    frame: Vec<u8>,
}

/// Divides an uplink for so many seconds by shares, by a reservation under two attacks, and by a
/// limit. The fabric is on CPU 0 and has the priority that it gets while a VM owns pCPUs. What
/// sends and receives is on another CPU.
pub(crate) fn run(seconds: u64) -> Outcome<Value> {
    let mut rig = Rig::of(Taut::start_with(&["--fabric-cpus", "0"]), 1);
    stay_on(1)?;
    prefer_workers(rig.taut.fabric_pid())?;
    rig.set(&["--network-io"]);
    for class in CLASSES {
        rig.taut.ok(["portgroup", "create", class, "--vswitch", "sw", "--traffic-class", class]);
    }
    let time = Duration::from_secs(seconds);
    let shares = by_shares(&mut rig, time)?;
    let [short, long] = SHORT.map(|short| by_reservation(&mut rig, time, short));
    let limit = by_limit(&mut rig, time);
    Ok(json!({ "seconds": seconds, "shares": shares, "short": short?, "long": long?, "limit": limit }))
}

/// Gives the workers of a fabric real-time priority. Without it, other programs of this machine
/// stop them for milliseconds, and the delays of frames are theirs.
fn prefer_workers(fabric: i32) -> Outcome<()> {
    for task in std::fs::read_dir(format!("/proc/{fabric}/task"))? {
        let task = task?;
        let name = std::fs::read_to_string(task.path().join("comm"))?;
        if name.starts_with("worker") {
            let number = task.file_name();
            let done = Command::new("chrt").args(["-f", "-p", "1"]).arg(number).status()?;
            if !done.success() {
                return Err("chrt cannot give a worker of the fabric real-time priority".into());
            }
        }
    }
    Ok(())
}

/// Three classes with shares of 1 : 2 : 4, each with a kind of frame of its own.
fn by_shares(rig: &mut Rig, time: Duration) -> Outcome<Value> {
    let mbit = 300;
    set_speed(rig, mbit)?;
    let parts =
        [("nfs", Length::Short, 1), ("iscsi", Length::Long, 2), ("virtualmachine", Length::Segmented, 4)];
    for (class, _, part) in parts {
        rig.set(&["--traffic", &format!("{class}:shares={}", 20 * part)]);
    }
    let mut senders: Vec<_> = (1..)
        .zip(parts)
        .map(|(number, (class, length, _))| Sender::attach(rig, class, number, length))
        .collect();
    let sent = flood(rig, &mut senders, time);
    let each = |(sender, (_, _, part)): (&Sender, (&str, Length, u32))| {
        let expected = sent.total() * f64::from(part) / 7.0;
        (sent.rate(sender.mac) / expected - 1.0).abs() * 100.0
    };
    let off = senders.iter().zip(parts).map(each).fold(0.0, f64::max);
    detach(rig, senders);
    Ok(json!({ "off_percent": off, "used_percent": sent.total() / f64::from(mbit) * 100.0 }))
}

/// A class with a reservation and two hundred flooding ports of another one; then a port that sends
/// a frame each millisecond within its reservation. `short` attackers send short frames.
fn by_reservation(rig: &mut Rig, time: Duration, short: u8) -> Outcome<Value> {
    let (mbit, reserved) = (1000, 300_u16);
    set_speed(rig, mbit)?;
    rig.set(&["--traffic", &format!("management:shares=1,reservation={reserved}Mbit")]);
    let length = |number| match number {
        0..SEGMENTED => Length::Segmented,
        _ if number < SEGMENTED + short => Length::Short,
        _ => Length::Long,
    };
    let mut senders: Vec<_> = (0..ATTACKERS)
        .map(|number| Sender::attach(rig, "virtualmachine", number + 1, length(number)))
        .collect();
    let reserver = Sender::attach(rig, "management", ATTACKERS + 1, Length::Long);
    let mac = reserver.mac;
    senders.push(reserver);
    let sent = flood(rig, &mut senders, time);
    // Its share of what the reservation leaves is one of 101.
    let own = sent.rate(mac) - (sent.total() - f64::from(reserved)) / 101.0;
    let off = (own / f64::from(reserved) - 1.0).abs() * 100.0;
    let used = sent.total() / f64::from(mbit) * 100.0;
    let mut reserver = senders.pop().ok_or("the port is there")?;
    let Delays { asked, mut each, mut looks } = delays(rig, &mut senders, &mut reserver, time);
    senders.push(reserver);
    detach(rig, senders);
    each.sort_unstable();
    looks.sort_unstable();
    Ok(json!({
        "off_percent": off, "used_percent": used, "asked": asked, "frames": each.len(),
        "p50_ms": at(&each, 500), "p99_ms": at(&each, 990), "p999_ms": at(&each, 999),
        "look_p99_ms": at(&looks, 990),
    }))
}

/// Returns a quantile of sorted times, in thousandths, in ms.
fn at(sorted: &[Duration], thousandths: usize) -> Option<f64> {
    sorted.get(sorted.len() * thousandths / 1000).map(|time| time.as_secs_f64() * 1e3)
}

/// A limited port alone on its uplink.
fn by_limit(rig: &mut Rig, time: Duration) -> Value {
    let limit = 50_u32;
    rig.set(&["--traffic", &format!("iscsi:limit={limit}Mbit")]);
    let mut senders = vec![Sender::attach(rig, "iscsi", 1, Length::Long)];
    let sent = flood(rig, &mut senders, time);
    let off = (sent.total() / f64::from(limit) - 1.0).abs() * 100.0;
    detach(rig, senders);
    json!({ "off_percent": off })
}

impl Sender {
    fn attach(rig: &Rig, portgroup: &str, number: u8, length: Length) -> Self {
        let mac = [2, 0, 0, 0, 1, number];
        let port = RawPort::attach(&rig.taut, &format!("s{number}"), portgroup, mac);
        let (header, frame) = length.frame(mac);
        Self { port, mac, header, frame }
    }

    /// Fills the ring.
    fn fill(&mut self) {
        while self.port.send(&self.header, &self.frame) {}
        self.port.flush();
    }
}

impl Length {
    fn frame(self, from: [u8; 6]) -> (NetHeader, Vec<u8>) {
        let len = match self {
            Self::Short => 60,
            Self::Long => 1514,
            Self::Segmented => 54 + 45 * 1448,
        };
        let mut frame = [&OUTSIDE[..], &from, &[0x88, 0xb5]].concat();
        frame.resize(len, 0);
        if !matches!(self, Self::Segmented) {
            return (NetHeader::default(), frame);
        }
        // TCP over IPv4 with 20 bytes of headers each.
        frame[12..14].copy_from_slice(&[8, 0]);
        frame[14] = 0x45;
        frame[16..18].copy_from_slice(&(len as u16 - 14).to_be_bytes());
        frame[22..24].copy_from_slice(&[64, 6]);
        frame[26..34].copy_from_slice(&[10, 0, 0, from[5], 10, 0, 0, 99]);
        frame[46] = 0x50;
        let header = NetHeader {
            flags: NEEDS_CSUM,
            gso_type: GSO_TCPV4,
            hdr_len: 54,
            gso_size: 1448,
            csum_start: 34,
            csum_offset: 16,
            ..NetHeader::default()
        };
        (header, frame)
    }
}

/// Bytes on the wire of each port within a time.
struct Sent {
    bytes: BTreeMap<[u8; 6], u64>,
    time: Duration,
}

impl Sent {
    /// Returns the rate of a port in Mbit/s.
    fn rate(&self, mac: [u8; 6]) -> f64 {
        mbits(self.bytes.get(&mac).copied().unwrap_or(0), self.time)
    }

    /// Returns the rate of all ports together in Mbit/s.
    fn total(&self) -> f64 {
        mbits(self.bytes.values().sum(), self.time)
    }
}

fn mbits(bytes: u64, time: Duration) -> f64 {
    bytes as f64 * 8e-6 / time.as_secs_f64()
}

/// Lets all ports send for about `time`, which begins after a while.
fn flood(rig: &Rig, senders: &mut [Sender], time: Duration) -> Sent {
    let mut bytes = BTreeMap::new();
    let mut space = vec![0; 70_000];
    let begin = Instant::now() + SETTLE;
    // When the cable was last found empty, and the same before `begin`.
    let (mut emptied, mut first) = (begin, begin);
    loop {
        let now = Instant::now();
        if now >= begin + time {
            return Sent { bytes, time: emptied - first };
        }
        senders.iter_mut().for_each(Sender::fill);
        rig.cables[0].take_each(&mut space, |frame| {
            if now >= begin && frame[..6] == OUTSIDE {
                let mac = frame[6..12].try_into().expect("six octets");
                *bytes.entry(mac).or_default() += (frame.len() as u64).max(SHORTEST) + AROUND;
            }
        });
        emptied = Instant::now();
        if now < begin {
            first = emptied;
        }
    }
}

/// Delays of the frames of one port.
struct Delays {
    /// Frames that it has sent.
    asked: usize,
    /// Times between the sending of a frame and its arrival outside.
    each: Vec<Duration>,
    /// Times between two looks at what has arrived outside: a frame that arrived meanwhile is late
    /// by a part of that, without having waited for the uplink.
    looks: Vec<Duration>,
}

/// Lets attackers send, and one more port each millisecond.
fn delays(rig: &Rig, attackers: &mut [Sender], own: &mut Sender, time: Duration) -> Delays {
    // Its ring empties first: the last frames of the flood are in it.
    let mut space = vec![0; 70_000];
    let idle = Instant::now() + SETTLE;
    while Instant::now() < idle || !own.port.is_idle() {
        attackers.iter_mut().for_each(Sender::fill);
        rig.cables[0].take_each(&mut space, |_| {});
    }
    let mut stamps: Vec<Instant> = Vec::new();
    let (mut each, mut looks) = (Vec::new(), Vec::new());
    let begun = Instant::now();
    let mut looked = begun;
    while begun.elapsed() < time {
        for some in attackers.chunks_mut(FILLED_BETWEEN_LOOKS) {
            if begun.elapsed() >= PAUSE * stamps.len() as u32 {
                own.frame[14..18].copy_from_slice(&(stamps.len() as u32).to_be_bytes());
                stamps.push(Instant::now());
                assert!(own.port.send(&own.header, &own.frame), "there is room for a frame");
                own.port.flush();
            }
            some.iter_mut().for_each(Sender::fill);
            rig.cables[0].take_each(&mut space, |frame| {
                if frame[6..12] == own.mac {
                    each.extend(stamps.get(number(frame) as usize).map(Instant::elapsed));
                }
            });
            let now = Instant::now();
            looks.push(now - looked);
            looked = now;
        }
    }
    Delays { asked: stamps.len(), each, looks }
}

/// Sets the speed of the card, and waits until it is known.
fn set_speed(rig: &Rig, mbit: u32) -> Outcome<()> {
    let speed = mbit.to_string();
    let set = ["-s", &rig.cables[0].card, "speed", &speed, "duplex", "full", "autoneg", "off"];
    let done = Command::new("ethtool").args(set).status()?;
    if !done.success() {
        return Err("ethtool cannot set the speed of a TAP device".into());
    }
    eventually("the speed is known", || {
        let uplinks = rig.taut.json(["uplink", "list"]);
        (uplinks[0]["status"]["speed_mbit"] == mbit).then_some(())
    });
    // The fabric is told after it is known.
    std::thread::sleep(SETTLE);
    Ok(())
}

fn detach(rig: &Rig, senders: Vec<Sender>) {
    for sender in senders {
        rig.taut.ok(["port", "detach", &sender.port.name]);
    }
    rig.cables[0].drain();
}
