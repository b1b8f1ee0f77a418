//! QP1: one session between programs that use queue pairs, beside the best TCP of one session and
//! five.
//!
//! The agents of both guests write and read with the client library, as the goals' names say:
//! unmodified programs with the preload library have no goals yet.

use super::guests::{beside, best_tcp, streams, with_each_kernel};
use crate::figure::Bound;
use crate::lab::Lab;
use crate::reason::Measured;
use crate::rounds::paired;
use crate::row::{Goal, Results, Row};
use crate::sets::vc_g::cells::Cell;

const GOALS: [&str; 6] = [
    "QP1-client-oldest-256",
    "QP1-client-oldest-4096",
    "QP1-client-oldest-65536",
    "QP1-client-newest-256",
    "QP1-client-newest-4096",
    "QP1-client-newest-65536",
];
const SMALL: &[Bound] = &[Bound::AtLeast(10.0, "x TCP")];
const PAGES: &[Bound] = &[Bound::AtLeast(4.0, "x TCP")];
const LARGE: &[Bound] = &[Bound::AtLeast(3.5, "x TCP")];

pub(super) const ROW: Row = Row {
    id: "QP1",
    what: "one session, one way, through queue pairs of both guests: programs with the client library, beside the \
           best TCP of one session and five",
    on: "two QEMU guests with Debian's oldest kernel, then two with the newest",
    goals: &[
        Goal::new(GOALS[0], SMALL),
        Goal::new(GOALS[1], PAGES),
        Goal::new(GOALS[2], LARGE),
        Goal::new(GOALS[3], SMALL),
        Goal::new(GOALS[4], PAGES),
        Goal::new(GOALS[5], LARGE),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    with_each_kernel(lab, results, &GOALS, |lab, results, kernel| {
        let report = streams(lab, "256,4KiB,64KiB", "1,5")?;
        for message in [256, 4096, 65536] {
            let ring = Cell::of("ring", message);
            let tcp = best_tcp(&report, message)?;
            let ratio = paired(&ring.figures(&report, "mbit_s")?, &tcp)?;
            let detail = beside(&report, ring, &tcp)?;
            results.record(&format!("QP1-client-{kernel}-{message}"), [ratio], detail);
        }
        Ok(())
    })
}
