//! UP14: cost of uplinks for those who have none: speed of this build beside the build before them,
//! measured as SE14 is.

use crate::lab::Lab;
use crate::reason::Measured;
use crate::row::{Goal, Results, Row};
use crate::sets::hs::cost::{BOUND, measure};
use crate::sets::hs::hs3::switch;

/// The commit before uplinks, and its folder below cargo's target folder.
const BEFORE: (&str, &str) = ("400917d", "before-uplinks");

/// Goal, load, figure.
const LOADS: &[switch::Load] = &[
    ("UP14-DP1-64", "one-way 64", "mpps"),
    ("UP14-DP2-256", "one-way 256", "mpps"),
    ("UP14-DP2-1518", "one-way 1518", "mpps"),
    ("UP14-DP3-packed", "one-way 64 --packed", "mpps"),
    ("UP14-DP3-both", "both-ways 64 --packed", "mpps"),
];

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
    measure(lab, results, BEFORE, LOADS, "UP14-VC-G1")
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
