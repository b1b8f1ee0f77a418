//! The daemon and the fabric are killed together while datagrams and a TCP connection pass an
//! uplink on veth.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use taut_tests::{Cable, Netns, Taut, eventually, ip, kill_9};

use crate::Outcome;
use crate::veth::{Arrivals, CLIENT, Outside, SERVER, begin, longest};

/// Time from the daemon's start to the next end of both processes, at least.
const AFTER: Duration = Duration::from_millis(600);
/// Time without a pause of half its length, after which traffic is back.
const STEADY: Duration = Duration::from_millis(300);
/// Longest time without traffic.
const PATIENCE: Duration = Duration::from_secs(30);

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
    take_longest(&arrivals, Instant::now())?;
    for _ in 0..times {
        let fabric = taut.fabric_pid();
        let begun = Instant::now();
        taut.kill_daemon();
        kill_9(fabric);
        taut.restart_daemon();
        std::thread::sleep(AFTER);
        let [datagrams, stream] = take_longest(&arrivals, begun)?;
        gaps.push(datagrams);
        stream_gaps.push(stream);
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

/// Waits until datagrams and the connection have passed steadily since `begun`. Returns the longest
/// time without each, in ms, since the last call.
fn take_longest(arrivals: &Arrivals, begun: Instant) -> Outcome<[f64; 2]> {
    loop {
        let mut datagrams = arrivals.datagrams.lock().map_err(|_| "a thread has failed")?;
        let mut stream = arrivals.stream.lock().map_err(|_| "a thread has failed")?;
        let of_datagrams: Vec<Instant> = datagrams.iter().map(|(_, at)| *at).collect();
        if is_steady(&of_datagrams, begun) && is_steady(&stream, begun) {
            let found = [&of_datagrams, &*stream].map(|all| longest(all.iter().copied(), all[0]));
            // The last ones begin the next time.
            let (before, other) = (datagrams.len() - 1, stream.len() - 1);
            datagrams.drain(..before);
            stream.drain(..other);
            return Ok(found);
        }
        if begun.elapsed() > PATIENCE {
            return Err(format!("no traffic for {PATIENCE:?} after both processes were killed").into());
        }
        drop((datagrams, stream));
        std::thread::sleep(STEADY / 2);
    }
}

/// Returns whether traffic goes on since a time after `begun`, for [`STEADY`].
fn is_steady(arrivals: &[Instant], begun: Instant) -> bool {
    let now = Instant::now();
    let recent = arrivals.iter().copied().filter(|at| *at > begun && *at + STEADY > now);
    let pause = STEADY / 2;
    let is_back = recent.clone().next().is_some_and(|first| first + pause < now);
    is_back && longest(recent, begun) < pause.as_secs_f64() * 1000.0
}
