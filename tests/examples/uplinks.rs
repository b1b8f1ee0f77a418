//! Measures teams of uplinks; the program itself is the switch outside.
//!
//! `uplinks failover LOSSES DEAD` takes the carrier from an active uplink so many times, the last
//! DEAD times without `tautd`, while a port sends a frame each millisecond.
//!
//! `uplinks flood FRAMES` sends each frame to both uplinks of a team, and what its port has sent
//! back to both, under each policy for which a port has one uplink.
//!
//! Both print one line of JSON.

use std::error::Error;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use taut_tests::{Cable, RawPort, Taut, eventually};
use taut_virtq::header::NetHeader;

type Outcome<T> = Result<T, Box<dyn Error>>;

const PORT: [u8; 6] = [2, 0, 0, 0, 0, 0xa];
const OUTSIDE: [u8; 6] = [2, 0, 0, 0, 0, 0x99];
const UNKNOWN: [u8; 6] = [2, 0, 0, 0, 0, 0x77];
const ALL: [u8; 6] = [0xff; 6];
/// Type of frames that nobody answers.
const TYPE: [u8; 2] = [0x88, 0xb5];
/// Pace of the frames of `failover`.
const PACE: Duration = Duration::from_millis(1);
/// Shortest time between two losses: a link that is lost 60 times within a minute is left alone.
const BETWEEN: Duration = Duration::from_millis(1050);
/// Longest time for a change of the uplink.
const PATIENCE: Duration = Duration::from_secs(5);
/// Frames that `flood` sends to each uplink before it looks at what came: fewer than the ring of a
/// port has buffers.
const CHUNK: u32 = 64;

fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let found = match words[..] {
        ["failover", losses, dead] => failover(losses.parse()?, dead.parse()?)?,
        ["flood", frames] => flood(frames.parse()?),
        _ => return Err("usage: uplinks failover LOSSES DEAD | uplinks flood FRAMES".into()),
    };
    println!("{found}");
    Ok(())
}

/// A port on a vSwitch with two uplinks.
struct Rig {
    taut: Taut,
    cables: [Cable; 2],
    port: RawPort,
}

impl Rig {
    fn new() -> Self {
        let taut = Taut::start().with_lan();
        let cables = [Cable::plug(), Cable::plug()];
        for cable in &cables {
            taut.ok(["uplink", "add", "sw", &cable.card]);
        }
        let port = RawPort::attach(&taut, "port", "lan", PORT);
        Self { taut, cables, port }
    }

    fn set(&self, words: &[&str]) {
        self.taut.ok(["vswitch", "set", "sw"].into_iter().chain(words.iter().copied()));
    }

    fn send(&mut self, frame: &[u8]) {
        assert!(self.port.send(&NetHeader::default(), frame), "the fabric takes the port's frames");
        self.port.flush();
    }

    /// Returns the numbers of the port's frames that an uplink has sent.
    fn sent(&self, uplink: usize) -> Vec<u32> {
        let is_ours = |frame: &[u8]| frame[6..12] == PORT && frame[12..14] == TYPE;
        let next = || self.cables[uplink].receive_if(Duration::ZERO, is_ours);
        std::iter::from_fn(next).map(|frame| number(&frame)).collect()
    }

    /// Returns the numbers of the frames that the port has received.
    fn received(&mut self) -> Vec<u32> {
        let mut numbers = Vec::new();
        while let Some(frame) = self.port.receive() {
            if frame[12..14] == TYPE {
                numbers.push(number(frame));
            }
        }
        self.port.flush();
        numbers
    }
}

fn frame(to: [u8; 6], from: [u8; 6], number: u32) -> Vec<u8> {
    let mut frame = [&to[..], &from, &TYPE, &number.to_be_bytes()].concat();
    frame.resize(64, 0);
    frame
}

fn number(frame: &[u8]) -> u32 {
    u32::from_be_bytes([frame[14], frame[15], frame[16], frame[17]])
}

/// A stream of frames, one each [`PACE`], and what has come out of the uplinks.
struct Stream {
    next: u32,
    due: Instant,
    /// Times of the last frames of both uplinks, and their numbers.
    last: [Option<(Instant, u32)>; 2],
    first: [Option<(Instant, u32)>; 2],
    arrived: Vec<u32>,
}

impl Stream {
    fn new() -> Self {
        Self { next: 0, due: Instant::now(), last: [None; 2], first: [None; 2], arrived: Vec::new() }
    }

    fn step(&mut self, rig: &mut Rig) {
        if Instant::now() >= self.due {
            rig.send(&frame(OUTSIDE, PORT, self.next));
            self.next += 1;
            self.due += PACE;
        }
        for uplink in [0, 1] {
            for number in rig.sent(uplink) {
                let now = Some((Instant::now(), number));
                self.last[uplink] = now;
                self.first[uplink] = self.first[uplink].or(now);
                self.arrived.push(number);
            }
        }
        std::thread::sleep(Duration::from_micros(50));
    }

    fn run(&mut self, rig: &mut Rig, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.step(rig);
        }
    }

    /// Sets the carrier of the first uplink, and goes on until frames leave by `uplink`.
    fn change(&mut self, rig: &mut Rig, carrier: &str, uplink: usize) -> Outcome<()> {
        self.first[uplink] = None;
        let mut ip =
            Command::new("ip").args(["link", "set", &rig.cables[0].card, "carrier", carrier]).spawn()?;
        let end = Instant::now() + PATIENCE;
        while self.first[uplink].is_none() {
            self.step(rig);
            if Instant::now() > end {
                return Err(format!("no frame has left by uplink {uplink} within {PATIENCE:?}").into());
            }
        }
        ip.wait()?;
        Ok(())
    }
}

fn failover(losses: usize, dead: usize) -> Outcome<Value> {
    let mut rig = Rig::new();
    let cards = [rig.cables[0].card.clone(), rig.cables[1].card.clone()];
    rig.set(&["--active", &cards[0], "--standby", &cards[1]]);
    let (mut gaps, mut lost_back, mut frames) = (Vec::new(), 0, 0);
    for loss in 0..losses {
        if loss + dead == losses {
            rig.taut.kill_daemon();
        }
        let begun = Instant::now();
        let mut stream = Stream::new();
        stream.run(&mut rig, Duration::from_millis(50));
        stream.change(&mut rig, "off", 1)?;
        let (Some((before, _)), Some((after, _))) = (stream.last[0], stream.first[1]) else {
            return Err("no frame has left by the first uplink".into());
        };
        gaps.push((after - before).as_secs_f64() * 1000.0);
        stream.run(&mut rig, Duration::from_millis(50));
        let from = stream.next;
        stream.change(&mut rig, "on", 0)?;
        stream.run(&mut rig, Duration::from_millis(50));
        frames += stream.next;
        let sent = stream.next - 20;
        let mut back: Vec<u32> =
            stream.arrived.iter().copied().filter(|number| (from..sent).contains(number)).collect();
        back.sort_unstable();
        back.dedup();
        lost_back += (sent - from) as usize - back.len();
        while begun.elapsed() < BETWEEN {
            stream.step(&mut rig);
        }
    }
    if dead > 0 {
        rig.taut.restart_daemon();
    }
    gaps.sort_by(f64::total_cmp);
    let at = |part: f64| gaps[((gaps.len() as f64 * part).ceil() as usize).clamp(1, gaps.len()) - 1];
    Ok(json!({
        "losses": losses, "dead": dead, "frames": frames, "lost_back": lost_back,
        "p50_ms": at(0.5), "p99_ms": at(0.99), "longest_ms": at(1.0),
    }))
}

fn flood(frames: u32) -> Value {
    let mut rig = Rig::new();
    let cards = [rig.cables[0].card.clone(), rig.cables[1].card.clone()];
    let both = cards.join(",");
    let policies: [(&str, &[&str]); 4] = [
        ("port-id", &["--team-policy", "port-id", "--active", &both, "--standby", "none"]),
        ("source-mac", &["--team-policy", "source-mac", "--active", &both, "--standby", "none"]),
        ("explicit", &["--team-policy", "explicit", "--active", &both, "--standby", "none"]),
        ("standby", &["--team-policy", "port-id", "--active", &cards[1], "--standby", &cards[0]]),
    ];
    let (mut total, mut duplicates, mut missing, mut strays, mut both_ways) = (0_u64, 0_usize, 0, 0, 0_usize);
    for (name, words) in policies {
        rig.set(words);
        let own = own_uplink(&mut rig);
        let mut number = 0;
        // A card's queue has 500 frames, so it is emptied after each chunk.
        let mut left = [0, 0];
        let count = |rig: &Rig, left: &mut [usize; 2]| {
            left[0] += rig.sent(own).len();
            left[1] += rig.sent(1 - own).len();
        };
        while number < frames / policies.len() as u32 {
            let chunk: Vec<u32> = (number..number + CHUNK).collect();
            let mut expected = Vec::new();
            for &number in &chunk {
                let to = [PORT, ALL, UNKNOWN][number as usize % 3];
                expected.extend((to != UNKNOWN).then_some(number));
                for cable in &rig.cables {
                    cable.send(&frame(to, OUTSIDE, number));
                }
                total += 2;
            }
            // A hub sends the frames of the port back by all cables.
            let sent = frame(OUTSIDE, PORT, number);
            rig.send(&sent);
            for cable in &rig.cables {
                cable.send(&sent);
                total += 1;
            }
            let mut received = Vec::new();
            let end = Instant::now() + PATIENCE;
            while received.len() < expected.len() && Instant::now() < end {
                rig.port.await_frame(Duration::from_millis(5));
                received.extend(rig.received());
            }
            number += CHUNK;
            count(&rig, &mut left);
            if number % (CHUNK * 16) == 0 {
                // A duplicate may come later than the frame.
                std::thread::sleep(Duration::from_millis(2));
                received.extend(rig.received());
            }
            let all = received.len();
            received.sort_unstable();
            received.dedup();
            duplicates += all - received.len();
            missing += expected.iter().filter(|number| received.binary_search(number).is_err()).count();
            strays += received.iter().filter(|number| expected.binary_search(number).is_err()).count();
        }
        std::thread::sleep(Duration::from_millis(50));
        count(&rig, &mut left);
        // One frame of the port for each chunk, and nothing else.
        both_ways += left[1];
        strays += left[0].abs_diff((number / CHUNK) as usize);
        eprintln!(
            "{name}: {duplicates} duplicates, {missing} missing, {strays} strays, {both_ways} elsewhere"
        );
    }
    json!({
        "frames": total, "policies": policies.len(), "duplicates": duplicates, "missing": missing,
        "strays": strays, "on_others": both_ways,
    })
}

/// Returns the uplink by which the port sends, once it receives nothing at its former one.
fn own_uplink(rig: &mut Rig) -> usize {
    std::thread::sleep(Duration::from_millis(1500));
    for uplink in [0, 1] {
        rig.sent(uplink);
    }
    rig.send(&frame(OUTSIDE, PORT, 0));
    eventually("the port's frame leaves by an uplink", || (0..2).find(|&uplink| !rig.sent(uplink).is_empty()))
}
