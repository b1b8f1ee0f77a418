//! The path of an uplink dies although its link stays, and comes and goes afterwards.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use taut_tests::Cable;

use crate::Outcome;
use crate::rig::{OUTSIDE, PATIENCE, PORT, Rig, TYPE, frame};

const GATEWAY: [u8; 4] = [10, 9, 0, 1];
/// Time until a path that is heard again is used, and a little more.
const BACK: Duration = Duration::from_secs(13);
/// Pace of the port's frames.
const PACE: Duration = Duration::from_millis(10);

/// Lets the path of the first uplink die so many times, with a gateway and two uplinks and with
/// beacons and three, and then come and go for so many seconds.
pub(crate) fn run(times: usize, seconds: u64) -> Outcome<Value> {
    let mut found = json!({});
    for (name, uplinks, probe) in [("gateway", 2, "10.9.0.1"), ("beacon", 3, "beacon")] {
        let mut rig = Rig::new(uplinks);
        rig.set(&["--team-policy", "explicit", "--active", &rig.cards(), "--probe", probe]);
        let mut network = Network { alive: vec![true; uplinks], last: 0, changes: 0, next: Instant::now() };
        network.run(&mut rig, Duration::from_secs(4));
        let mut left_ms = Vec::new();
        for _ in 0..times {
            if network.last != 0 {
                return Err(format!("{name}: the port does not use the first uplink").into());
            }
            network.alive[0] = false;
            let begun = Instant::now();
            while network.last == 0 {
                network.step(&mut rig);
                if begun.elapsed() > 2 * PATIENCE {
                    return Err(format!("{name}: the dead path is not left").into());
                }
            }
            left_ms.push(begun.elapsed().as_secs_f64() * 1000.0);
            network.alive[0] = true;
            network.run(&mut rig, BACK);
        }
        network.alive[0] = false;
        network.run(&mut rig, PATIENCE);
        network.changes = 0;
        let end = Instant::now() + Duration::from_secs(seconds);
        while Instant::now() < end {
            network.alive[0] = true;
            network.run(&mut rig, Duration::from_secs(1));
            network.alive[0] = false;
            network.run(&mut rig, Duration::from_secs(3));
        }
        found[name] = json!({
            "times": times, "left_ms": left_ms, "longest_ms": left_ms.iter().copied().fold(0.0, f64::max),
            "seconds": seconds, "changes": network.changes,
        });
    }
    Ok(found)
}

/// A network that connects all cables whose path is alive, with a gateway.
struct Network {
    alive: Vec<bool>,
    /// Uplink by which the port has sent last.
    last: usize,
    /// Number of times that it was another one than before.
    changes: usize,
    /// Time of the next frame of the port.
    next: Instant,
}

impl Network {
    fn run(&mut self, rig: &mut Rig, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.step(rig);
        }
    }

    fn step(&mut self, rig: &mut Rig) {
        if Instant::now() >= self.next {
            self.next += PACE;
            rig.send(&frame(OUTSIDE, PORT, 0));
        }
        for (at, cable) in rig.cables.iter().enumerate() {
            while let Some(frame) = cable.receive_if(Duration::ZERO, |_| true) {
                if frame[6..12] == PORT && frame[12..14] == TYPE {
                    self.changes += usize::from(at != self.last);
                    self.last = at;
                }
                if !self.alive[at] {
                    continue;
                }
                if let Some(answer) = Cable::answer_of(&frame, GATEWAY, OUTSIDE) {
                    cable.send(&answer);
                }
                for (other, to) in rig.cables.iter().enumerate() {
                    if other != at && self.alive[other] {
                        to.send(&frame);
                    }
                }
            }
        }
        std::thread::sleep(Duration::from_micros(500));
    }
}
