//! QP6: requests and responses of redis-benchmark beside five streams of iperf3 from the same guest
//! to the same one, all with the preload library through queue pairs. As many streams beside TCP's
//! requests are stated.

use super::guests::with_each_kernel;
use super::programs::iperf3::{self, Streams};
use super::programs::latency::Latency;
use super::programs::{QUEUE_PAIRS, Way, redis, run_in, sample, start};
use crate::figure::{Bound, shown};
use crate::lab::Lab;
use crate::reason::Measured;
use crate::rounds::{Plan, Rounds};
use crate::row::{Goal, Results, Row};

const BOUNDS: &[Bound] = &[
    Bound::AtMost(2.0, "x the p99 without streams"),
    Bound::Stated("x by TCP"),
    Bound::Stated("x TCP's p99 beside streams"),
];
/// Bytes of a request.
const SIZE: u32 = 64;
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
        let requests = lab.pick(2000, 100);
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

/// Measures requests while five streams run. Fails if the streams end before the requests.
fn beside_streams(lab: &mut Lab, way: Way, requests: u32) -> Measured<Latency> {
    let streams = Streams { size: 65536, sessions: 5, seconds: 600 }.command(way);
    let requests = redis::command(way, SIZE, requests);
    let script = format!(
        "{streams} >/tmp/streams 2>&1 &\n\
         streams=$!\n\
         sleep 2\n\
         {requests}\n\
         requests=$?\n\
         kill $streams || {{ cat /tmp/streams; false; }}\n\
         streams=$?\n\
         wait\n\
         [ $requests = 0 ] && [ $streams = 0 ]"
    );
    let latency = sample(lab, way, |lab| {
        let text = run_in(lab, "a", "beside-streams", &script, 300)?;
        Ok((redis::percentiles(&text)?, LEAST_BYTES))
    })?;
    // A server of iperf3 refuses the next client until it has noticed the end of this one.
    lab.sleep(0.5)?;
    Ok(latency)
}
