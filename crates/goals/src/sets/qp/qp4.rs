//! QP4: programs that use plain `AF_VSOCK`, without a library and without queue pairs, beside TCP
//! through the vSwitch with buffers of 256 KiB or of the kernels' own sizes, whichever is faster.

use super::guests::OneSession;
use crate::figure::Bound;
use crate::lab::Lab;
use crate::reason::Measured;
use crate::row::{Goal, Results, Row};

const SMALL: &[Bound] = &[Bound::AtLeast(0.9, "x TCP")];
const PAGES: &[Bound] = &[Bound::AtLeast(0.95, "x TCP")];
const LARGE: &[Bound] = &[Bound::AtLeast(1.1, "x TCP")];

pub(super) const ROW: Row = Row {
    id: "QP4",
    what: "one session of plain AF_VSOCK sockets, beside TCP through the vSwitch",
    on: "two QEMU guests with Debian's oldest kernel, then two with the newest",
    goals: &[
        Goal::new("QP4-oldest-256", SMALL),
        Goal::new("QP4-oldest-4096", PAGES),
        Goal::new("QP4-oldest-65536", LARGE),
        Goal::new("QP4-newest-256", SMALL),
        Goal::new("QP4-newest-4096", PAGES),
        Goal::new("QP4-newest-65536", LARGE),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let goals = ROW.goals_with("QP4-");
    OneSession { id: "QP4", goals: &goals, transport: "vsock", tcp_sessions: &[1] }.measure(lab, results)
}
