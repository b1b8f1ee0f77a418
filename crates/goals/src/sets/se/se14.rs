//! SE14: cost of confinement and checks: speed of this build beside the build before VMs and the
//! fabric ran behind walls.

use crate::lab::Lab;
use crate::reason::Measured;
use crate::row::{Goal, Results, Row};
use crate::sets::hs::before::programs_of;
use crate::sets::hs::cost::{BOUND, measure};

/// The commit before programs ran behind walls, and its folder below cargo's target folder.
const BEFORE: (&str, &str) = ("a6b25fe", "before-walls");

pub(super) const ROW: Row = Row {
    id: "SE14",
    what: "cost of confinement and checks, beside the build before them",
    on: "builds in alternation: switch, and VMCI sockets of microguests (streams on one pCPU)",
    goals: &[
        Goal::new("SE14-DP1-64", BOUND),
        Goal::new("SE14-DP2-256", BOUND),
        Goal::new("SE14-DP2-1518", BOUND),
        Goal::new("SE14-DP3-packed", BOUND),
        Goal::new("SE14-DP3-both", BOUND),
        Goal::new("SE14-DP5-traversal", BOUND),
        Goal::new("SE14-VC-G1", BOUND),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let old = programs_of(lab, BEFORE.0, BEFORE.1)?;
    measure(lab, results, &old, &ROW)
}
