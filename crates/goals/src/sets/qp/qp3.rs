//! QP3: five sessions of 64 KiB writes through queue pairs, beside the best TCP of one session and
//! five, with buffers of 256 KiB and of the kernels' own sizes.

use super::guests::{ANY_BUFFERS, ONE_AND_FIVE, beside, best_tcp, start_pair, streams, with_each_kernel};
use crate::figure::{Bound, percentile};
use crate::lab::Lab;
use crate::reason::Measured;
use crate::rounds::paired;
use crate::row::{Goal, Results, Row};
use crate::sets::vc_g::cells::Cell;

const MESSAGE: u32 = 65536;
const BOUNDS: &[Bound] = &[
    Bound::AtLeast(4.0, "x TCP"),
    Bound::AtLeast(1.0, "x one session"),
    Bound::AtLeast(0.95, "Jain's index, worst repeat"),
];

pub(super) const ROW: Row = Row {
    id: "QP3",
    what: "five sessions of 64 KiB writes through queue pairs: programs with the client library, beside the best TCP \
           of one session and five",
    on: "two QEMU guests with Debian's oldest kernel, then two with the newest",
    goals: &[Goal::new("QP3-client-oldest", BOUNDS), Goal::new("QP3-client-newest", BOUNDS)],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    with_each_kernel(lab, results, &ROW.goals_with("QP3-"), start_pair, |lab, results, kernel| {
        let report = streams(lab, "64KiB", ONE_AND_FIVE)?;
        let one = Cell::of("ring", MESSAGE);
        let five = Cell { sessions: 5, ..one };
        let tcp = best_tcp(&report, MESSAGE, ONE_AND_FIVE, ANY_BUFFERS)?;
        let rates = five.figures(&report, "mbit_s")?;
        let of_tcp = paired(&rates, &tcp)?;
        let of_one = paired(&rates, &one.figures(&report, "mbit_s")?)?;
        let fairness = percentile(&five.figures(&report, "fairness")?, 0.0)?;
        let detail = beside(&report, five, &tcp)?;
        results.record(&format!("QP3-client-{kernel}"), [of_tcp, of_one, fairness.into()], detail);
        Ok(())
    })
}
