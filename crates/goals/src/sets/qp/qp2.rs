//! QP2: request and response through queue pairs, beside TCP through the vSwitch. A reader looks at
//! its ring for at most 50 µs before it sleeps.

use super::guests::with_each_kernel;
use crate::figure::Bound;
use crate::lab::Lab;
use crate::reason::Measured;
use crate::rounds::paired;
use crate::row::{Goal, Results, Row};
use crate::sets::vc_g::cells::Cell;
use crate::sets::vc_g::guests::bench;

const GOALS: [&str; 4] =
    ["QP2-client-oldest-64", "QP2-client-oldest-4096", "QP2-client-newest-64", "QP2-client-newest-4096"];
const BOUNDS: &[Bound] = &[Bound::AtMost(0.7, "x TCP's p50"), Bound::Stated("x TCP's p99")];

pub(super) const ROW: Row = Row {
    id: "QP2",
    what: "request and response of 64 B and 4 KiB through queue pairs, polled for up to 50 µs: programs with the \
           client library",
    on: "two QEMU guests with Debian's oldest kernel, then two with the newest",
    goals: &[
        Goal::new(GOALS[0], BOUNDS),
        Goal::new(GOALS[1], BOUNDS),
        Goal::new(GOALS[2], BOUNDS),
        Goal::new(GOALS[3], BOUNDS),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    with_each_kernel(lab, results, &GOALS, |lab, results, kernel| {
        let (seconds, repeats) = lab.pick((2, 7), (1, 1));
        let words = "a b --mode rr --message 64,4KiB --socket-size 64KiB --against tcp,ring";
        let report = bench(lab, &format!("{words} --duration {seconds} --repeat {repeats}"))?;
        for message in [64, 4096] {
            let [ring, tcp] = ["ring", "tcp"].map(|transport| Cell::of(transport, message));
            let ratio = |figure| paired(&ring.figures(&report, figure)?, &tcp.figures(&report, figure)?);
            let values = [ratio("p50_us")?, ratio("p99_us")?];
            let [own, beside] = [ring, tcp].map(|cell| cell.percentiles(&report));
            let detail = format!("p50/p99/p99.9 {}, TCP {}", own?, beside?);
            results.record(&format!("QP2-client-{kernel}-{message}"), values, detail);
        }
        Ok(())
    })
}
