//! QP4: programs that use plain `AF_VSOCK`, without a library and without queue pairs, beside TCP
//! through the vSwitch.

use super::guests::{beside, streams, with_each_kernel};
use crate::figure::Bound;
use crate::lab::Lab;
use crate::reason::Measured;
use crate::rounds::paired;
use crate::row::{Goal, Results, Row};
use crate::sets::vc_g::cells::Cell;

const GOALS: [&str; 6] = [
    "QP4-oldest-256",
    "QP4-oldest-4096",
    "QP4-oldest-65536",
    "QP4-newest-256",
    "QP4-newest-4096",
    "QP4-newest-65536",
];
const SMALL: &[Bound] = &[Bound::AtLeast(0.9, "x TCP")];
const PAGES: &[Bound] = &[Bound::AtLeast(0.95, "x TCP")];
const LARGE: &[Bound] = &[Bound::AtLeast(1.1, "x TCP")];

pub(super) const ROW: Row = Row {
    id: "QP4",
    what: "one session of plain AF_VSOCK sockets, beside TCP through the vSwitch",
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
        let report = streams(lab, "256,4KiB,64KiB", "1")?;
        for message in [256, 4096, 65536] {
            let [own, tcp] = ["vsock", "tcp"].map(|transport| Cell::of(transport, message));
            let tcp = tcp.figures(&report, "mbit_s")?;
            let ratio = paired(&own.figures(&report, "mbit_s")?, &tcp)?;
            let detail = beside(&report, own, &tcp)?;
            results.record(&format!("QP4-{kernel}-{message}"), [ratio], detail);
        }
        Ok(())
    })
}
