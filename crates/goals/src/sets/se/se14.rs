//! SE14: cost of confinement and checks: speed of this build beside the build before VMs and the
//! fabric ran behind walls.

use crate::lab::Lab;
use crate::reason::Measured;
use crate::row::{Goal, Results, Row};
use crate::sets::hs::cost::{BOUND, measure};
use crate::sets::hs::hs3::switch;

/// The commit before programs ran behind walls, and its folder below cargo's target folder.
const BEFORE: (&str, &str) = ("a6b25fe", "before-walls");

/// Goal, load, figure.
const LOADS: &[switch::Load] = &[
    ("SE14-DP1-64", "one-way 64", "mpps"),
    ("SE14-DP2-256", "one-way 256", "mpps"),
    ("SE14-DP2-1518", "one-way 1518", "mpps"),
    ("SE14-DP3-packed", "one-way 64 --packed", "mpps"),
    ("SE14-DP3-both", "both-ways 64 --packed", "mpps"),
    ("SE14-DP5-traversal", "traversal 64", "traversal.p50_ns"),
];

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
    measure(lab, results, BEFORE, LOADS, "SE14-VC-G1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_load_has_a_goal() {
        let goals: Vec<&str> = ROW.goals.iter().map(|goal| goal.id).collect();
        assert!(LOADS.iter().all(|(goal, ..)| goals.contains(goal)));
        assert_eq!(goals.len(), LOADS.len() + 1);
    }
}
