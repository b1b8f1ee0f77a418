//! VC-G5: throughput by message and socket size, VMCI sockets and TCP, one session and five: for
//! microguests, at native speed, and for Linux guests.

use super::guests::{bench, start_daemon, two_micros, vm};
use crate::figure::{Bound, percentile};
use crate::lab::{Lab, NEWEST};
use crate::machine::Doc;
use crate::reason::Measured;
use crate::row::{Goal, Results, Row};

const BOUNDS: &[Bound] = &[
    Bound::Exactly(0.0, "cells missing"),
    Bound::Stated("Gbit/s at best"),
    Bound::Stated("Gbit/s TCP at best"),
];

pub(super) const ROW: Row = Row {
    id: "VC-G5",
    what: "throughput by message and socket size, one session and five",
    on: "two microguests, then two QEMU guests with Debian's newest kernel",
    goals: &[Goal::new("VC-G5-micro", BOUNDS), Goal::new("VC-G5-linux", BOUNDS)],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    for goal in ["VC-G5-micro", "VC-G5-linux"] {
        let outcome = measure(lab, results, goal);
        results.settle(&[goal], outcome);
        lab.stop_daemon()?;
    }
    Ok(())
}

fn measure(lab: &mut Lab, results: &mut Results, goal: &str) -> Measured<()> {
    start_daemon(lab, "")?;
    let is_micro = goal.ends_with("micro");
    if is_micro {
        two_micros(lab)?;
    } else {
        vm(lab, "a", NEWEST, "10.82.0.1")?;
        vm(lab, "b", NEWEST, "10.82.0.2")?;
    }
    let sizes = lab.pick("64,256,1KiB,4KiB,16KiB,64KiB", "64,4KiB,64KiB");
    let (seconds, repeats) =
        if is_micro { lab.pick((2.0, 3), (0.3, 1)) } else { lab.pick((2.0, 3), (0.5, 1)) };
    let drawing = lab.fresh(&format!("{goal}.svg"))?;
    let words = format!("a b --message {sizes} --sessions 1,5 --duration {seconds} --repeat {repeats}");
    let report = bench(lab, &format!("{words} --against tcp --svg {}", drawing.display()))?;
    lab.written(&drawing)?;
    // Two transports, two sizes of sockets, one session and five.
    let wanted = sizes.split(',').count() * 8;
    let cells = report.numbers("cells", "median.mbit_s")?.len();
    let missing = wanted as f64 - cells as f64;
    let best = ["vsock", "tcp"].map(|transport| best(&report, transport));
    let [own, tcp] = best;
    results.record(goal, [missing, own?, tcp?], format!("{cells} cells, drawn in {goal}.svg"));
    Ok(())
}

/// Returns the highest median of a transport in Gbit/s.
fn best(report: &Doc, transport: &str) -> Measured<f64> {
    let cells = report.list("cells")?;
    let own = cells.iter().filter(|cell| cell.matches(&[("transport", transport)]));
    let rates: Measured<Vec<f64>> = own.map(|cell| cell.number("median.mbit_s")).collect();
    Ok(percentile(&rates?, 100.0)? / 1000.0)
}
