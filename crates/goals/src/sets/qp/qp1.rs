//! QP1: one session through queue pairs of both guests, beside the best TCP of one session and
//! five: by agents, which use the client library, and by programs that do not know taut, with the
//! preload library.

use serde_json::json;

use super::guests::{ONE_AND_FIVE, OneSession, with_each_kernel};
use super::programs::iperf3::{self, Streams};
use super::programs::{QUEUE_PAIRS, Way, start, write_loop};
use crate::figure::{Bound, Value, median, shown};
use crate::lab::Lab;
use crate::machine::Doc;
use crate::reason::Measured;
use crate::rounds::{Plan, Rounds, Sample, paired};
use crate::row::{Goal, Results, Row};

const SMALL: &[Bound] = &[Bound::AtLeast(10.0, "x TCP")];
const PAGES: &[Bound] = &[Bound::AtLeast(4.0, "x TCP")];
const LARGE: &[Bound] = &[Bound::AtLeast(3.5, "x TCP")];

const MEMCPY: Bound = Bound::Stated("x memcpy of the guest");
const SMALL_PROGRAM: &[Bound] = &[SMALL[0], MEMCPY];
const PAGES_PROGRAM: &[Bound] = &[PAGES[0], MEMCPY];
const LARGE_PROGRAM: &[Bound] = &[LARGE[0], MEMCPY];

pub(super) const ROW: Row = Row {
    id: "QP1",
    what: "one session, one way, through queue pairs of both guests, beside the best TCP of one session and five: \
           programs with the client library; iperf3, and a C program that writes in a loop, with the preload library",
    on: "two QEMU guests with Debian's oldest kernel, then two with the newest; 64 MiB of queue pairs each (rings of 1 MiB)",
    goals: &[
        Goal::new("QP1-client-oldest-256", SMALL),
        Goal::new("QP1-client-oldest-4096", PAGES),
        Goal::new("QP1-client-oldest-65536", LARGE),
        Goal::new("QP1-client-newest-256", SMALL),
        Goal::new("QP1-client-newest-4096", PAGES),
        Goal::new("QP1-client-newest-65536", LARGE),
        Goal::new("QP1-c-oldest-256", SMALL_PROGRAM),
        Goal::new("QP1-iperf3-oldest-4096", PAGES_PROGRAM),
        Goal::new("QP1-iperf3-oldest-65536", LARGE_PROGRAM),
        Goal::new("QP1-c-newest-256", SMALL_PROGRAM),
        Goal::new("QP1-iperf3-newest-4096", PAGES_PROGRAM),
        Goal::new("QP1-iperf3-newest-65536", LARGE_PROGRAM),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let goals = ROW.goals_with("-client-");
    let client =
        OneSession { id: "QP1-client", goals: &goals, transport: "ring", tcp_sessions: ONE_AND_FIVE };
    client.measure(lab, results)?;
    programs(lab, results)
}

/// Measures programs with the preload library.
fn programs(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let goals = [ROW.goals_with("-c-"), ROW.goals_with("-iperf3-")].concat();
    // It also measures memcpy, which stands beside all figures.
    let write_loop = write_loop::build(lab)?;
    let iperf3 = lab.tool("iperf3");
    let files: Vec<_> = [write_loop].into_iter().chain(iperf3.clone()).collect();
    let boot = |lab: &mut Lab, image: &str| start(lab, image, QUEUE_PAIRS, &files);
    with_each_kernel(lab, results, &goals, boot, |lab, results, kernel| {
        let ways = [Way::Tcp, Way::Rings];
        let outcome = write_loop::start(lab, &ways)
            .and_then(|()| beside_tcp(lab, results, &format!("QP1-c-{kernel}-256"), 256, write_loop::mbit_s));
        results.settle(&[&*format!("QP1-c-{kernel}-256")], outcome);
        iperf3.clone()?;
        iperf3::start(lab, &ways)?;
        [4096, 65536].into_iter().try_for_each(|size| {
            beside_tcp(lab, results, &format!("QP1-iperf3-{kernel}-{size}"), size, iperf3::mbit_s)
        })
    })
}

/// Measures one session of writes of one size through queue pairs, TCP with one session and five,
/// and memcpy in the guest, in alternation.
fn beside_tcp(
    lab: &mut Lab,
    results: &mut Results,
    goal: &str,
    size: u32,
    mbit_s: impl Fn(&mut Lab, Way, Streams) -> Measured<f64>,
) -> Measured<()> {
    let (rounds, seconds) = lab.pick((7, 3), (2, 1));
    let cells = ["tcp", "tcp of five", "rings", "memcpy"];
    let rounds = Rounds::take(Plan::exactly(rounds), &cells, None, |cell| {
        let sessions = if cell == "tcp of five" { 5 } else { 1 };
        let rate = match cell {
            "memcpy" => write_loop::memcpy_mbit_s(lab)?,
            _ => mbit_s(lab, Way::of(cell), Streams { size, sessions, seconds })?,
        };
        Ok(Sample::new(Doc::from(json!({ "mbit_s": rate }))))
    })?;
    let of = |cell| rounds.figures(cell, "mbit_s");
    let best: Vec<f64> =
        of("tcp")?.into_iter().zip(of("tcp of five")?).map(|(one, five)| one.max(five)).collect();
    let values: [Value; 2] = [paired(&of("rings")?, &best)?, rounds.ratio("rings", "memcpy", "mbit_s")?];
    let [own, tcp, memcpy] = [of("rings")?, best, of("memcpy")?].map(|rates| median(&rates).map(shown));
    let detail = format!("{} Mbit/s, TCP {}, memcpy {}", own?, tcp?, memcpy?);
    results.record(goal, values, detail);
    Ok(())
}
