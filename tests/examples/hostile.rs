//! Performs acts of a hostile front end, and measures what honest neighbours notice of them:
//! `hostile SESSIONS`. Prints one JSON document.
//!
//! Passes over all acts alternate with passes of the same length in which the front end keeps to
//! the rules. The neighbours are the same, and measure the same, in both.

use std::time::{Duration, Instant};

use serde_json::json;
use taut_tests::hostile::{Effect, Seen, Stage, acts};

/// Passes of which one has the acts that take seconds.
const SLOW_EVERY: usize = 20;

/// Delay from which on a frame was held up by an act, and not by a thread that waits for a pCPU: a
/// write that blocks is interrupted by the fabric's watcher after one of its ticks at the earliest.
const STALL: Duration = Duration::from_millis(5);

/// Totals of one kind of passes.
#[derive(Default)]
struct Total {
    sessions: usize,
    frames: usize,
    lost: u64,
    delays: Vec<Duration>,
}

impl Total {
    fn add(&mut self, sessions: usize, seen: Seen) {
        self.sessions += sessions;
        self.frames += seen.delays.len();
        self.lost += seen.lost;
        self.delays.extend(seen.delays);
    }

    fn longest(&self) -> Duration {
        self.delays.iter().copied().max().unwrap_or_default()
    }

    fn stalls(&self) -> usize {
        self.delays.iter().filter(|delay| **delay >= STALL).count()
    }

    /// The delay that all but one in `parts` frames keep.
    fn percentile(&mut self, parts: usize) -> Duration {
        self.delays.sort_unstable();
        let at = self.delays.len() - self.delays.len() / parts;
        self.delays.get(at.saturating_sub(1)).copied().unwrap_or_default()
    }

    fn report(&mut self) -> serde_json::Value {
        json!({
            "sessions": self.sessions,
            "frames": self.frames,
            "lost": self.lost,
            "stalls": self.stalls(),
            "p50_us": self.percentile(2).as_micros() as u64,
            "p999_us": self.percentile(1000).as_micros() as u64,
            "longest_ms": self.longest().as_secs_f64() * 1000.0,
        })
    }
}

fn main() {
    let wanted: usize = std::env::args().nth(1).and_then(|word| word.parse().ok()).expect("hostile SESSIONS");
    let stage = Stage::start();
    let fabric = stage.taut().fabric_pid();
    let acts = acts();
    let (mut hostile, mut honest) = (Total::default(), Total::default());
    let (mut failures, mut starts, mut performed) = (Vec::new(), 1, std::collections::BTreeSet::new());
    let mut pass = 0;
    while hostile.sessions < wanted {
        stage.neighbours.take();
        let begun = Instant::now();
        let mut sessions = 0;
        for act in &acts {
            if hostile.sessions + sessions == wanted {
                break;
            }
            if act.is_slow && pass % SLOW_EVERY != 0 {
                continue;
            }
            // The reasons are the same in each pass, and asking for them takes time.
            match stage.perform(act, pass == 0) {
                Ok(()) => _ = performed.insert(&*act.name),
                Err(error) => failures.push(error),
            }
            sessions += 1;
            starts += usize::from(matches!(act.effect, Effect::Quarantined(_)));
        }
        hostile.add(sessions, stage.neighbours.take());
        let end = Instant::now() + begun.elapsed();
        let mut sessions = 0;
        while Instant::now() < end {
            failures.extend(stage.behave().err());
            sessions += 1;
        }
        honest.add(sessions, stage.neighbours.take());
        pass += 1;
    }
    let deaths = stage.taut().json(["events"]);
    let deaths = deaths.as_array().expect("a list").iter().filter(|event| event["kind"] == "fabric.died");
    let same = stage.taut().fabric_pid() == fabric;
    let deaths = deaths.count().max(usize::from(!same));
    let report = json!({
        "acts": acts.len(),
        "performed": performed.len(),
        "failed": failures.len(),
        "failures": failures.iter().take(20).collect::<Vec<_>>(),
        "deaths": deaths,
        "starts": starts,
        "hostile": hostile.report(),
        "honest": honest.report(),
    });
    println!("{report:#}");
}
