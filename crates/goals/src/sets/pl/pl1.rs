//! PL1: a latency-sensitive VM that answers requests of 1024 B over a connection beside four
//! CPU-bound VMs, normal and high in alternation, with QEMU guests.
//!
//! Latency is measured with each request right after the last answer. Faster answers then mean more
//! requests, of which the client, the fabric and QEMU's main loop take their part from the
//! neighbours' only pCPU. What the neighbours keep is therefore measured at one request every 2 ms,
//! the same number under both levels, and both figures are shown.

use super::conditions::{kept, middle, ratio};
use super::stage::{self, Kind, NEIGHBOURS, PARTIES};
use crate::figure::{Bound, shown};
use crate::lab::Lab;
use crate::machine::Doc;
use crate::reason::Measured;
use crate::row::{Goal, Results, Row};

pub(super) const ROW: Row = Row {
    id: "PL1",
    what: "latency sensitivity normal and high beside VMs that compute",
    on: "five QEMU guests with Debian's newest kernel",
    goals: &[
        Goal::new("PL1-p99", &[Bound::AtLeast(10.0, "x better")]),
        Goal::new("PL1-p99_9", &[Bound::AtLeast(12.0, "x better")]),
        Goal::new("PL1-neighbours", &[Bound::AtLeast(55.0, "% of their throughput")]),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    stage::set(lab, Kind::Vm)?;
    let report = bench(lab, "pl1", "")?;
    for (goal, figure) in [("PL1-p99", "p99_us"), ("PL1-p99_9", "p99_9_us")] {
        let [normal, high] = ["normal", "high"].map(|condition| middle(&report, condition, figure));
        let detail = format!("{} µs normal, {} µs high", shown(normal?.round()), shown(high?.round()));
        results.record(goal, [ratio(&report, figure, "normal", "high")?], detail);
    }
    let paced = bench(lab, "pl1-paced", "--interval 2")?;
    let unpaced = shown(kept(&report)?.value);
    let detail = format!("500 requests a second; {unpaced} % when each request follows the last answer");
    results.record("PL1-neighbours", [kept(&paced)?], detail);
    Ok(())
}

fn bench(lab: &mut Lab, name: &str, options: &str) -> Measured<Doc> {
    let (repeats, seconds) = lab.pick((6, 10), (2, 4));
    let drawing = lab.fresh(&format!("{name}.svg"))?;
    let words = format!("neighbours {PARTIES} --beside {NEIGHBOURS} --duration {seconds} {options}");
    lab.bench(format!("{words} --repeat {repeats} --svg {}", drawing.display()))
}
