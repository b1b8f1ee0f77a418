//! The fabric is killed and upgraded while frames pass an uplink.

use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use taut_tests::kill_9;
use taut_virtq::header::NetHeader;

use crate::Outcome;
use crate::rig::{OUTSIDE, PATIENCE, PORT, Rig, frame};

/// Pace of the frames of each direction.
const PACE: Duration = Duration::from_millis(1);
/// Time of traffic before and after.
const AROUND: Duration = Duration::from_millis(300);

/// Processes that end.
#[derive(Clone, Copy)]
enum End {
    Fabric,
    Upgrade,
}

/// Ends the fabric so many times, half of them by an upgrade.
pub(crate) fn run(times: usize) -> Outcome<Value> {
    let mut rig = Rig::new(1);
    let card = rig.cables[0].card.clone();
    let carrier = || std::fs::read_to_string(format!("/sys/class/net/{card}/carrier_changes"));
    let mut gaps = [Vec::new(), Vec::new()];
    let mut frames = 0;
    pass(&mut rig, &mut Flow::new(), 2 * AROUND);
    let before = carrier()?;
    let rounds = [(End::Fabric, times.div_ceil(2)), (End::Upgrade, times / 2)];
    for (which, (end, rounds)) in rounds.into_iter().enumerate() {
        for _ in 0..rounds {
            let fabric = rig.taut.fabric_pid();
            let mut flow = Flow::new();
            pass(&mut rig, &mut flow, AROUND);
            flow.begin();
            match end {
                End::Fabric => kill_9(fabric),
                End::Upgrade => {
                    let mut command = rig.taut.command();
                    // The line of JSON is alone on standard output.
                    command.args(["daemon", "upgrade-fabric"]).stdout(Stdio::null());
                    let mut upgrade = command.spawn()?;
                    let status = loop {
                        step(&mut rig, &mut flow);
                        if let Some(status) = upgrade.try_wait()? {
                            break status;
                        }
                    };
                    if !status.success() {
                        return Err("the fabric was not upgraded".into());
                    }
                }
            }
            pass(&mut rig, &mut flow, AROUND);
            let begun = Instant::now();
            while flow.is_silent() {
                step(&mut rig, &mut flow);
                if begun.elapsed() > PATIENCE {
                    let silent = flow.last.map(|last| last.elapsed());
                    return Err(
                        format!("no frames pass any more: out and in are silent for {silent:?}").into()
                    );
                }
            }
            gaps[which].push(flow.longest.as_secs_f64() * 1000.0);
            frames += flow.passed;
        }
    }
    let changed = carrier()? != before;
    let [fabric, upgrade] = gaps.map(|mut gaps| {
        gaps.sort_by(f64::total_cmp);
        let at = |part: f64| gaps.get(((gaps.len() as f64 * part).ceil() as usize).max(1) - 1).copied();
        json!({ "times": gaps.len(), "p50_ms": at(0.5), "p99_ms": at(0.99), "longest_ms": at(1.0) })
    });
    Ok(json!({
        "kill": fabric, "upgrade": upgrade, "frames": frames,
        "carrier_changes": u8::from(changed),
    }))
}

/// Frames of both directions, and the longest time without one.
struct Flow {
    next: Instant,
    number: u32,
    last: [Instant; 2],
    longest: Duration,
    passed: u64,
}

impl Flow {
    fn new() -> Self {
        let now = Instant::now();
        Self { next: now, number: 0, last: [now; 2], longest: Duration::ZERO, passed: 0 }
    }

    /// Begins to measure.
    fn begin(&mut self) {
        self.longest = Duration::ZERO;
    }

    /// Returns whether one direction waits for frames.
    fn is_silent(&self) -> bool {
        self.last.iter().any(|last| last.elapsed() > 20 * PACE)
    }

    fn arrived(&mut self, direction: usize, count: usize) {
        if count > 0 {
            let now = Instant::now();
            self.longest = self.longest.max(now - self.last[direction]);
            self.last[direction] = now;
            self.passed += count as u64;
        }
    }
}

fn pass(rig: &mut Rig, flow: &mut Flow, time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        step(rig, flow);
    }
}

fn step(rig: &mut Rig, flow: &mut Flow) {
    if Instant::now() >= flow.next {
        // Frames that are late by much are not made up for.
        let is_late = flow.next.elapsed() > 10 * PACE;
        flow.next = if is_late { Instant::now() } else { flow.next + PACE };
        flow.number += 1;
        // While nobody serves the ring, it may be full.
        rig.port.send(&NetHeader::default(), &frame(OUTSIDE, PORT, flow.number));
        rig.port.flush();
        rig.cables[0].send(&frame(PORT, OUTSIDE, flow.number));
    }
    let out = rig.sent(0).len();
    let inward = rig.received().len();
    flow.arrived(0, out);
    flow.arrived(1, inward);
    std::thread::sleep(Duration::from_micros(100));
}
