//! VC-G3: request and response of 256 B between microguests, beside TCP through the vSwitch. The
//! fabric's threads poll while there is traffic, or sleep at once.

use super::cells::Cell;
use super::guests::{bench, start_daemon, two_micros};
use crate::figure::Bound;
use crate::lab::Lab;
use crate::reason::Measured;
use crate::rounds::paired;
use crate::row::{Goal, Results, Row};

const BOUNDS: &[Bound] = &[Bound::AtMost(1.0, "x TCP's p50")];

pub(super) const ROW: Row = Row {
    id: "VC-G3",
    what: "request and response of 256 B beside TCP through the vSwitch",
    on: "two microguests",
    goals: &[Goal::new("VC-G3-polled", BOUNDS), Goal::new("VC-G3-blocking", BOUNDS)],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let modes = [("VC-G3-polled", "--fabric-poll-us 1000"), ("VC-G3-blocking", "--fabric-mode interrupt")];
    for (goal, options) in modes {
        let outcome = measure(lab, results, goal, options);
        results.settle(&[goal], outcome);
        lab.stop_daemon()?;
    }
    Ok(())
}

fn measure(lab: &mut Lab, results: &mut Results, goal: &str, options: &str) -> Measured<()> {
    let (seconds, rounds) = lab.pick((2, 7), (1, 2));
    start_daemon(lab, options)?;
    two_micros(lab)?;
    let words = "a b --mode rr --message 256 --socket-size 64KiB --against tcp";
    let report = bench(lab, &format!("{words} --duration {seconds} --repeat {rounds}"))?;
    let [vsock, tcp] = ["vsock", "tcp"].map(|transport| Cell::of(transport, 256));
    let ratio = paired(&vsock.figures(&report, "p50_us")?, &tcp.figures(&report, "p50_us")?)?;
    let [own, beside] = [vsock, tcp].map(|cell| cell.percentiles(&report));
    results.record(goal, [ratio], format!("p50/p99/p99.9 {}, TCP {}", own?, beside?));
    Ok(())
}
