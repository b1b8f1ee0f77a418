//! QP6: requests and responses of redis-benchmark beside five streams of iperf3 from the same guest
//! to the same one, all with the preload library through queue pairs. As many streams beside TCP's
//! requests are stated.
//!
//! The bytes of the requests are few beside those of the streams, so counters of bytes do not say
//! that the requests, or each of the streams, go by queue pairs. The list of connections does,
//! while all of them are open.

use std::fmt::Display;
use std::time::Duration;

use super::guests::with_each_kernel;
use super::programs::iperf3::{self, Streams};
use super::programs::latency::Latency;
use super::programs::{QUEUE_PAIRS, Way, in_guest, printed, redis, sample, start};
use super::shells::Connections;
use crate::figure::{Bound, shown};
use crate::lab::Lab;
use crate::machine::Job;
use crate::reason::{Context as _, Measured, require};
use crate::rounds::{Plan, Rounds};
use crate::row::{Goal, Results, Row};

const BOUNDS: &[Bound] = &[
    Bound::AtMost(2.0, "x the p99 without streams"),
    Bound::Stated("x by TCP"),
    Bound::Stated("x TCP's p99 beside streams"),
];
/// Bytes of a request.
const SIZE: u32 = 64;
/// Streams beside the requests.
const STREAMS: u32 = 5;
/// Connections of iperf3: its streams, and one for control.
const OF_IPERF3: u32 = STREAMS + 1;
/// Line of the guest's script before the requests.
const REQUESTS: &str = "requests begin.";
/// Bytes that five streams send at least in a sample.
const LEAST_BYTES: f64 = 5e7;

pub(super) const ROW: Row = Row {
    id: "QP6",
    what: "p99 of requests and responses of 64 B (redis-benchmark) beside five bulk streams of the same VM (iperf3), \
           all with the preload library through queue pairs; the same by TCP",
    on: "two QEMU guests with Debian's oldest kernel, then two with the newest",
    goals: &[Goal::new("QP6-redis-oldest", BOUNDS), Goal::new("QP6-redis-newest", BOUNDS)],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let files = [lab.tool("iperf3")?];
    let boot = |lab: &mut Lab, image: &str| start(lab, image, QUEUE_PAIRS, &files);
    with_each_kernel(lab, results, &ROW.goals_with("QP6-"), boot, |lab, results, kernel| {
        let ways = [Way::Tcp, Way::Rings];
        redis::start(lab, &ways)?;
        iperf3::start(lab, &ways)?;
        let cells = ["tcp", "tcp loaded", "rings", "rings loaded"];
        let plan = Plan::exactly(lab.pick(7, 2));
        // The list of connections is read meanwhile, which takes some tens of milliseconds.
        let requests = lab.pick(2000, 1000);
        let rounds = Rounds::take(plan, &cells, None, |cell| {
            let (way, is_loaded) = cell.strip_suffix(" loaded").map_or((cell, false), |way| (way, true));
            let way = Way::of(way);
            let latency = if is_loaded {
                beside_streams(lab, way, requests)?
            } else {
                redis::latency(lab, way, SIZE, requests)?
            };
            Ok(latency.sample())
        })?;
        let ratio = |over, under| rounds.ratio(over, under, "p99_us");
        let values = [
            ratio("rings loaded", "rings")?,
            ratio("tcp loaded", "tcp")?,
            ratio("rings loaded", "tcp loaded")?,
        ];
        let p99 = |cell| rounds.median(cell, "p99_us").map(|value| shown(value.value));
        let [tcp, tcp_loaded, rings, loaded] = cells.map(p99);
        let detail = format!("p99 {} µs, without {}; TCP {}, without {}", loaded?, rings?, tcp_loaded?, tcp?);
        results.record(&format!("QP6-redis-{kernel}"), values, detail);
        Ok(())
    })
}

/// Measures requests while five streams run. Fails if the streams end before the requests, or if
/// the way is by queue pairs and a connection is not attached at both ends.
fn beside_streams(lab: &mut Lab, way: Way, requests: u32) -> Measured<Latency> {
    let streams = Streams { size: 65536, sessions: STREAMS, seconds: 600 }.command(way);
    let requests = redis::command(way, SIZE, requests);
    let script = format!(
        "{streams} >/tmp/streams 2>&1 &\n\
         streams=$!\n\
         sleep 2\n\
         echo '{REQUESTS}'\n\
         {requests}\n\
         requests=$?\n\
         kill $streams || {{ cat /tmp/streams; false; }}\n\
         streams=$?\n\
         wait\n\
         [ $requests = 0 ] && [ $streams = 0 ]"
    );
    let latency = sample(lab, way, |lab| {
        let command = in_guest(lab, "a", "beside-streams", &script, 300)?;
        let job = lab.start(&command)?;
        all_attached(lab, way, &job)?;
        let ended = lab.wait(&job, Duration::from_secs(300))?;
        let text = printed(&ended.stdout).when("`beside-streams` in guest a")?;
        Ok((redis::percentiles(&text)?, LEAST_BYTES))
    })?;
    // A server of iperf3 refuses the next client until it has noticed the end of this one.
    lab.sleep(0.5)?;
    Ok(latency)
}

/// Waits until the requests run, and then until all connections of streams and requests are
/// attached at both ends. By TCP, the list of connections is read once, as most often by queue
/// pairs, so that both have the same work beside them.
fn all_attached(lab: &mut Lab, way: Way, job: &Job) -> Measured<()> {
    let mut seen = [0, 0];
    lab.until("streams and requests are attached", 120, |lab| {
        let output = lab.machine().output(job)?;
        let is_over = output.contains("status ") && !lab.machine().takes_for_granted();
        require(!is_over, not_attached(seen, output.last_lines(3)))?;
        if !output.contains(REQUESTS) {
            lab.sleep(0.1)?;
            return Ok(false);
        }
        let list = Connections::list(lab)?;
        seen = [list.attached(iperf3::port(way))?, list.attached(redis::port(way))?];
        Ok(way == Way::Tcp || are_all(seen))
    })
}

/// Tells whether so many attached connections of iperf3 and of redis-benchmark are all of them.
fn are_all([of_streams, of_requests]: [u32; 2]) -> bool {
    of_streams >= OF_IPERF3 && of_requests >= 1
}

fn not_attached([of_streams, of_requests]: [u32; 2], said: impl Display) -> String {
    format!(
        "{of_streams} of {OF_IPERF3} connections of the streams and {of_requests} of 1 of the requests were \
         attached at both ends: {said}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_without_attached_requests_are_not_all_and_the_reverse() {
        assert_eq!([[6, 1], [6, 0], [5, 1], [0, 0]].map(are_all), [true, false, false, false]);
        assert!(
            not_attached([6, 0], "OK").contains("6 of 6") && not_attached([6, 0], "OK").ends_with(": OK")
        );
    }
}
