//! QP2: request and response through queue pairs, beside TCP through the vSwitch: by agents, which
//! use the client library and look at their ring for at most 50 µs before they sleep; and by
//! redis-benchmark and a Python program with asyncio, with the preload library, polled for as long
//! and blocking.

use super::guests::{start_pair, with_each_kernel};
use super::programs::echo::{Echo, Talk};
use super::programs::latency::{Latencies, Latency};
use super::programs::{QUEUE_PAIRS, Way, redis, start};
use crate::figure::Bound;
use crate::lab::Lab;
use crate::reason::Measured;
use crate::rounds::paired;
use crate::row::{Goal, Results, Row};
use crate::sets::vc_g::cells::Cell;
use crate::sets::vc_g::guests::bench;

const CLIENT: &[Bound] = &[Bound::AtMost(0.7, "x TCP's p50"), Bound::Stated("x TCP's p99")];
const PROGRAM: &[Bound] = &[
    Bound::AtMost(0.7, "x TCP's p50, polled"),
    Bound::AtMost(1.0, "x TCP's p50, blocking"),
    Bound::AtMost(1.0, "x TCP's p99, blocking"),
    Bound::Stated("x TCP's p99, polled"),
];
const SIZES: [u32; 2] = [64, 4096];

pub(super) const ROW: Row = Row {
    id: "QP2",
    what: "request and response of 64 B and 4 KiB through queue pairs: programs with the client library, polled for up \
           to 50 µs; redis-benchmark and a Python asyncio program with the preload library, polled and blocking",
    on: "two QEMU guests with Debian's oldest kernel, then two with the newest",
    goals: &[
        Goal::new("QP2-client-oldest-64", CLIENT),
        Goal::new("QP2-client-oldest-4096", CLIENT),
        Goal::new("QP2-client-newest-64", CLIENT),
        Goal::new("QP2-client-newest-4096", CLIENT),
        Goal::new("QP2-redis-oldest-64", PROGRAM),
        Goal::new("QP2-redis-oldest-4096", PROGRAM),
        Goal::new("QP2-asyncio-oldest-64", PROGRAM),
        Goal::new("QP2-asyncio-oldest-4096", PROGRAM),
        Goal::new("QP2-redis-newest-64", PROGRAM),
        Goal::new("QP2-redis-newest-4096", PROGRAM),
        Goal::new("QP2-asyncio-newest-64", PROGRAM),
        Goal::new("QP2-asyncio-newest-4096", PROGRAM),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    with_each_kernel(lab, results, &ROW.goals_with("-client-"), start_pair, client)?;
    programs(lab, results)
}

/// Measures agents, which use the client library.
fn client(lab: &mut Lab, results: &mut Results, kernel: &str) -> Measured<()> {
    let (seconds, repeats) = lab.pick((2, 7), (1, 1));
    let words = "a b --mode rr --message 64,4KiB --socket-size 64KiB --against tcp,ring";
    let report = bench(lab, &format!("{words} --duration {seconds} --repeat {repeats}"))?;
    for message in SIZES {
        let [ring, tcp] = ["ring", "tcp"].map(|transport| Cell::of(transport, message));
        let ratio = |figure| paired(&ring.figures(&report, figure)?, &tcp.figures(&report, figure)?);
        let values = [ratio("p50_us")?, ratio("p99_us")?];
        let [own, beside] = [ring, tcp].map(|cell| cell.percentiles(&report));
        let detail = format!("p50/p99/p99.9 {}, TCP {}", own?, beside?);
        results.record(&format!("QP2-client-{kernel}-{message}"), values, detail);
    }
    Ok(())
}

/// Measures programs with the preload library.
fn programs(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let goals = [ROW.goals_with("-redis-"), ROW.goals_with("-asyncio-")].concat();
    let echo = Echo::build(lab);
    let files = echo.clone().map_or_else(|_| Vec::new(), |echo| echo.files);
    let boot = |lab: &mut Lab, image: &str| start(lab, image, QUEUE_PAIRS, &files);
    let ways = [Way::Tcp, Way::Rings, Way::Polled];
    let rounds = lab.pick(3000, 200);
    with_each_kernel(lab, results, &goals, boot, |lab, results, kernel| {
        let outcome = redis::start(lab, &ways).and_then(|()| {
            let latency = |lab: &mut Lab, way, size| redis::latency(lab, way, size, rounds);
            of_program(lab, results, &format!("QP2-redis-{kernel}"), latency)
        });
        results.settle(
            &SIZES.map(|size| format!("QP2-redis-{kernel}-{size}")).each_ref().map(String::as_str),
            outcome,
        );
        let echo = echo.clone()?;
        echo.start(lab, &ways)?;
        of_program(lab, results, &format!("QP2-asyncio-{kernel}"), |lab, way, size| {
            echo.latency(lab, way, Talk { size, rounds, pause: 0.0 })
        })
    })
}

/// Measures a program by TCP and through queue pairs, polled and blocking, in alternation.
fn of_program(
    lab: &mut Lab,
    results: &mut Results,
    id: &str,
    latency: impl Fn(&mut Lab, Way, u32) -> Measured<Latency>,
) -> Measured<()> {
    let cells = ["tcp", "rings", "polled"];
    for size in SIZES {
        let rounds = lab.pick(7, 2);
        let measured = Latencies::take(lab, rounds, &cells, |lab, way| latency(lab, way, size))?;
        let values = [
            measured.of_tcp("polled", "p50_us")?,
            measured.of_tcp("rings", "p50_us")?,
            measured.of_tcp("rings", "p99_us")?,
            measured.of_tcp("polled", "p99_us")?,
        ];
        results.record(&format!("{id}-{size}"), values, measured.listed(&cells)?);
    }
    Ok(())
}
