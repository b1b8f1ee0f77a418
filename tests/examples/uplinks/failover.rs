//! The carrier of an active uplink is lost, and comes back.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::Outcome;
use crate::rig::{OUTSIDE, PATIENCE, PORT, Rig, frame};

/// Pace of the frames.
const PACE: Duration = Duration::from_millis(1);
/// Shortest time between two losses: a link that is lost 60 times within a minute is left alone.
const BETWEEN: Duration = Duration::from_millis(1050);

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

/// Takes the carrier from the first uplink so many times, the last `dead` times without `tautd`.
pub(crate) fn run(losses: usize, dead: usize) -> Outcome<Value> {
    let mut rig = Rig::new(2);
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
