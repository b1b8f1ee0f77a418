//! SE14: cost of confinement and checks: speed of this build beside the build before VMs and the
//! fabric ran behind walls. Short samples alternate in the order ABBA. Pairs are added until the
//! 95 % interval of the median ratio is at most 1 % wide, up to 60.

use crate::figure::Bound;
use crate::lab::Lab;
use crate::reason::Measured;
use crate::rounds::Plan;
use crate::row::{Goal, Results, Row};
use crate::sets::hs::before::programs_of;
use crate::sets::hs::hs3::{guests, switch};

/// The commit before programs ran behind walls, and its folder below cargo's target folder.
const BEFORE: (&str, &str) = ("a6b25fe", "before-walls");

/// After ÷ before: 1.5 % slower at most.
const BOUND: &[Bound] = &[Bound::LowLimitAtLeast(0.985, "x")];

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
    let (commit, folder) = BEFORE;
    let old = programs_of(lab, commit, folder)?;
    let plan = Plan { least: 8, most: lab.pick(60, 10), width: 0.01 };
    switch::run(lab, results, plan, &old, LOADS)?;
    guests::streams(lab, results, plan, &old, "SE14-VC-G1");
    Ok(())
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
