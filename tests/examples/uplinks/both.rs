//! The daemon and the fabric are killed together while datagrams and a TCP connection pass an
//! uplink on veth.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use taut_tests::{Cable, Netns, Taut, eventually, ip, kill_9};

use crate::Outcome;
use crate::veth::{Arrivals, CLIENT, Outside, SERVER, begin, longest};

/// Time of traffic before and after. It is longer than the longest gap that is expected, and than
/// the pause after which TCP sends again.
const AROUND: Duration = Duration::from_secs(2);

/// Kills both processes so many times and starts the daemon again at once.
pub(crate) fn run(times: usize) -> Outcome<Value> {
    let mut taut = Taut::start().with_lan();
    let outside = Outside::new(&taut);
    let card = outside.cards[0].clone();
    // The card's queueing discipline appears when the card is up for the first time, and stays.
    for state in ["up", "down"] {
        ip(&format!("link set {card} {state}"));
    }
    let before = Cable::state_of(&card);
    taut.ok(["uplink", "add", "sw", &card]);
    let inside = Netns::attach(&taut, "in", "lan", CLIENT);
    inside.reaches(SERVER, 5);
    let carrier = || std::fs::read_to_string(format!("/sys/class/net/{card}/carrier_changes"));
    let changes = carrier()?;
    let arrivals = Arc::new(Arrivals::default());
    let threads = begin(&inside.name, &outside.name, &arrivals)?;
    let (mut gaps, mut stream_gaps) = (Vec::new(), Vec::new());
    for _ in 0..times {
        std::thread::sleep(AROUND);
        arrivals.datagrams.lock().map_err(|_| "poisoned")?.clear();
        arrivals.stream.lock().map_err(|_| "poisoned")?.clear();
        let fabric = taut.fabric_pid();
        let begun = Instant::now();
        taut.kill_daemon();
        kill_9(fabric);
        taut.restart_daemon();
        std::thread::sleep(AROUND);
        let datagrams = arrivals.datagrams.lock().map_err(|_| "poisoned")?;
        gaps.push(longest(datagrams.iter().map(|(_, at)| *at), begun));
        stream_gaps.push(longest(arrivals.stream.lock().map_err(|_| "poisoned")?.iter().copied(), begun));
    }
    let changed = carrier()? != changes;
    arrivals.is_over.store(true, Relaxed);
    for thread in threads {
        thread.join().map_err(|_| "a thread has failed")?;
    }
    taut.ok(["uplink", "remove", &card]);
    eventually("the card is as before", || (Cable::state_of(&card) == before).then_some(()));
    gaps.sort_by(f64::total_cmp);
    let at = |part: f64| gaps[((gaps.len() as f64 * part).ceil() as usize).clamp(1, gaps.len()) - 1];
    Ok(json!({
        "times": times, "p50_ms": at(0.5), "longest_ms": at(1.0),
        "tcp_longest_ms": stream_gaps.iter().copied().fold(0.0, f64::max),
        "carrier_changes": u8::from(changed),
    }))
}
