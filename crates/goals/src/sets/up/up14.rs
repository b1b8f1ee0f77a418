//! UP14: cost of uplinks for those who have none: speed of this build beside the build before them,
//! measured as SE14 is.

use crate::lab::Lab;
use crate::reason::Measured;
use crate::row::{Goal, Results, Row};
use crate::sets::hs::before::programs_of;
use crate::sets::hs::cost::{BOUND, measure};

/// The commit before uplinks, and its folder below cargo's target folder.
const BEFORE: (&str, &str) = ("400917d", "before-uplinks");

pub(super) const ROW: Row = Row {
    id: "UP14",
    what: "cost of uplinks for a switch without one, beside the build before them",
    on: "builds in alternation: switch, and VMCI sockets of microguests (streams on one pCPU)",
    goals: &[
        Goal::new("UP14-DP1-64", BOUND),
        Goal::new("UP14-DP2-256", BOUND),
        Goal::new("UP14-DP2-1518", BOUND),
        Goal::new("UP14-DP3-packed", BOUND),
        Goal::new("UP14-DP3-both", BOUND),
        Goal::new("UP14-VC-G1", BOUND),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let old = programs_of(lab, BEFORE.0, BEFORE.1)?;
    measure(lab, results, &old, &ROW)
}
