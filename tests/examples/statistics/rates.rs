//! Rates of ports that send as fast as they are told.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use taut_tests::{RawPort, Taut, eventually, kill_9};
use taut_virtq::header::NetHeader;

use crate::Outcome;

/// Frames per second of each port.
const RATES: [u64; 12] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000];
/// Every third port sends the frames of a second at once.
const BURSTS: usize = 3;
/// Bytes of a frame.
const LEN: usize = 200;
/// Time between two looks at what is due.
const LOOK: Duration = Duration::from_millis(1);
/// Time before the first comparison and after the last frame, in which samples are taken.
const SETTLE: Duration = Duration::from_secs(3);
/// Frames that a rate may be off because a sample is taken while one is sent.
const UNCERTAIN: f64 = 1.0;

/// A port, and the times at which it has sent.
struct Sender {
    port: RawPort,
    rate: u64,
    in_bursts: bool,
    frame: Vec<u8>,
    /// Times in ms since the Unix epoch, in order.
    sent: Vec<u64>,
}

impl Sender {
    fn attach(taut: &Taut, number: usize) -> Self {
        let mac = mac(number);
        let port = RawPort::attach(taut, &format!("p{number}"), "lan", mac);
        let mut frame = [&[0xff; 6][..], &mac, &[0x88, 0xb5]].concat();
        frame[..6].copy_from_slice(&[2, 0, 0, 0, 1, 0xff]);
        frame.resize(LEN, 0);
        let in_bursts = number.is_multiple_of(BURSTS);
        Self { port, rate: RATES[number], in_bursts, frame, sent: Vec::new() }
    }

    /// Sends what is due after so much time.
    fn send(&mut self, after: Duration) {
        let due = if self.in_bursts {
            self.rate * after.as_secs()
        } else {
            (u128::from(self.rate) * after.as_micros() / 1_000_000) as u64
        };
        while (self.sent.len() as u64) < due && self.port.send(&NetHeader::default(), &self.frame) {
            self.sent.push(wall_ms());
        }
        self.port.flush();
    }

    /// Returns the frames that were sent after `from` until `to`.
    fn sent_between(&self, from: u64, to: u64) -> f64 {
        let before = |time: u64| self.sent.partition_point(|at| *at <= time);
        (before(to) - before(from)) as f64
    }
}

/// Answers of `taut net stats` for all ports.
struct Seen {
    port: String,
    from: u64,
    to: u64,
    /// Time of the question.
    asked: u64,
    rate: f64,
    counted: f64,
}

/// Sends for so many seconds.
pub(crate) fn run(seconds: u64) -> Outcome<Value> {
    let taut = Taut::start().with_lan();
    let mut senders: Vec<Sender> = (0..RATES.len()).map(|number| Sender::attach(&taut, number)).collect();
    sleep(SETTLE);
    let is_over = AtomicBool::new(false);
    let begun = Instant::now();
    let (mut looks, failed) = std::thread::scope(|scope| {
        let looks = scope.spawn(|| each_second(&taut, &is_over));
        while begun.elapsed() < Duration::from_secs(seconds) {
            for sender in &mut senders {
                sender.send(begun.elapsed());
            }
            sleep(LOOK);
        }
        is_over.store(true, Ordering::Relaxed);
        looks.join().map_or_else(|_| (Vec::new(), true), |looks| (looks, false))
    });
    if failed {
        return Err("`taut net stats` failed".into());
    }
    // The first second has no sample of before.
    let wall = wall_ms() - 1000 * (seconds - 2);
    looks.retain(|seen| seen.from > wall);
    let asked = seconds.min(300);
    let whole = statistics(&taut, &format!("{asked}s"))?;
    let is_covered = |seen: &Seen| seen.to - seen.from >= 950 * asked && wall_ms() - seen.to < 5000;
    if !whole.iter().all(is_covered) {
        return Err("a port has no samples of all the time".into());
    }
    let of =
        |seen: &Seen| senders.iter().find(|sender| format!("external/{}", sender.port.name) == seen.port);
    let off = |seen: &Seen| {
        let Some(sender) = of(seen) else { return 0.0 };
        let sent = sender.sent_between(seen.from, seen.to);
        ((seen.counted - sent).abs() - UNCERTAIN).max(0.0) * 100.0 / sent.max(1.0)
    };
    let worst = |all: &[Seen]| all.iter().map(off).fold(0.0, f64::max);
    let longest_gap = longest_gap(&looks);
    let negative = looks.iter().chain(&whole).filter(|seen| seen.rate < 0.0).count();
    let ports = whole.iter().filter(|seen| of(seen).is_some()).count();
    let (looked, whole_off, second_off) = (looks.len(), worst(&whole), worst(&looks));
    let mut offs: Vec<f64> = looks.iter().map(off).collect();
    offs.sort_by(f64::total_cmp);
    let p99 = offs.get(offs.len() * 99 / 100).copied();
    let killed = after_a_kill(&taut, &mut senders)?;
    Ok(json!({
        "seconds": seconds,
        "ports": ports,
        "off_percent": whole_off,
        "looks": looked,
        "second_off_percent": second_off,
        "second_off_p99_percent": p99,
        "longest_gap_ms": longest_gap,
        "negative": negative,
        "killed": killed,
    }))
}

/// Returns the longest time between two samples of a port, by the ends of averages over a second
/// and by the times they were asked for.
fn longest_gap(looks: &[Seen]) -> u64 {
    let mut last = BTreeMap::new();
    let gaps = looks.iter().map(|seen| {
        let before = last.insert(&seen.port, seen.to).unwrap_or(seen.from);
        seen.to.saturating_sub(before).max(seen.asked.saturating_sub(seen.to))
    });
    gaps.max().unwrap_or(u64::MAX)
}

/// Reads averages over a second until the load is over.
fn each_second(taut: &Taut, is_over: &AtomicBool) -> Vec<Seen> {
    let mut looks = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        // An answer that fails shows as a gap.
        looks.extend(statistics(taut, "1s").unwrap_or_default());
        sleep(Duration::from_millis(700));
    }
    looks
}

/// Kills the fabric. Another one takes over the ports, which send again. Waits first, so that the
/// counts before the kill have all frames of the load.
fn after_a_kill(taut: &Taut, senders: &mut [Sender]) -> Outcome<Value> {
    sleep(SETTLE);
    let before = statistics(taut, "1h")?;
    let killed = taut.fabric_pid();
    kill_9(killed);
    eventually("another fabric runs", || (taut.fabric_pid() != killed).then_some(()));
    let (mut wrong, mut sent) = (0, Vec::new());
    for (number, sender) in senders.iter_mut().enumerate() {
        let asked = 10 + number;
        let frames = (0..asked).filter(|_| sender.port.send(&NetHeader::default(), &sender.frame)).count();
        sender.port.flush();
        wrong += u32::from(frames != asked);
        sent.push((format!("external/{}", sender.port.name), frames as f64));
    }
    sleep(SETTLE);
    let after = statistics(taut, "1h")?;
    let count = |all: &[Seen], port: &str| all.iter().find(|seen| seen.port == port).map(|seen| seen.counted);
    for (port, frames) in &sent {
        let grown = count(&after, port).zip(count(&before, port)).map(|(after, before)| after - before);
        wrong += u32::from(grown != Some(*frames));
    }
    let negative = after.iter().filter(|seen| seen.rate < 0.0).count();
    Ok(json!({ "ports": sent.len(), "wrong": wrong, "negative": negative }))
}

/// Returns the averages of all ports over a period.
fn statistics(taut: &Taut, period: &str) -> Outcome<Vec<Seen>> {
    let asked = wall_ms();
    let mut command: Command = taut.command();
    let out = command.args(["-o", "json", "net", "stats", "--period", period]).output()?;
    if !out.status.success() {
        return Err(String::from_utf8_lossy(&out.stderr).into_owned().into());
    }
    let all: Value = serde_json::from_slice(&out.stdout)?;
    let mut found = Vec::new();
    for one in all.as_array().ok_or("no list of ports")? {
        let number = |value: &Value| value.as_f64().ok_or("a figure is missing");
        let to = number(&one["to_ms"])? as u64;
        found.push(Seen {
            port: one["owner"].as_str().ok_or("a port has no owner")?.to_owned(),
            from: to - number(&one["covered_ms"])? as u64,
            to,
            asked,
            rate: number(&one["rates"]["tx_frames_per_s"])?,
            counted: number(&one["counted"]["tx_frames"])?,
        });
    }
    Ok(found)
}

fn mac(number: usize) -> [u8; 6] {
    [2, 0, 0, 0, 1, number as u8]
}

fn wall_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64)
}
