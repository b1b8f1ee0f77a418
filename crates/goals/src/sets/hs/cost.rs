//! Cost of a change for those who do not use it: speed of this build beside the build before it.
//! Short samples alternate in the order ABBA. Pairs are added until the 95 % interval of the median
//! ratio is at most 1 % wide, up to 60.

use std::path::Path;

use super::hs3::{guests, switch};
use crate::figure::Bound;
use crate::lab::Lab;
use crate::reason::Measured;
use crate::rounds::Plan;
use crate::row::{Results, Row};

/// After ÷ before: 1.5 % slower at most.
pub(in crate::sets) const BOUND: &[Bound] = &[Bound::LowLimitAtLeast(0.985, "x")];

/// End of the goal's id, load, figure.
const LOADS: &[switch::Load] = &[
    ("-DP1-64", "one-way 64", "mpps"),
    ("-DP2-256", "one-way 256", "mpps"),
    ("-DP2-1518", "one-way 1518", "mpps"),
    ("-DP3-packed", "one-way 64 --packed", "mpps"),
    ("-DP3-both", "both-ways 64 --packed", "mpps"),
    ("-DP5-traversal", "traversal 64", "traversal.p50_ns"),
];
/// End of the id of the goal for streams of VMCI sockets.
const STREAMS: &str = "-VC-G1";

/// Measures the loads of the switch for which a row has a goal, and streams of VMCI sockets.
/// `old` is the folder of the programs without the change.
pub(in crate::sets) fn measure(lab: &mut Lab, results: &mut Results, old: &Path, row: &Row) -> Measured<()> {
    let plan = Plan { least: 8, most: lab.pick(60, 10), width: 0.01 };
    switch::run(lab, results, plan, old, &loads_of(row))?;
    if let Some(streams) = goal_of(row, STREAMS) {
        guests::streams(lab, results, plan, old, streams);
    }
    Ok(())
}

/// Returns the loads for which a row has a goal.
pub(super) fn loads_of(row: &Row) -> Vec<switch::Load> {
    LOADS.iter().filter_map(|&(end, load, figure)| Some((goal_of(row, end)?, load, figure))).collect()
}

/// Returns the goal of a row whose id ends so.
fn goal_of(row: &Row, end: &str) -> Option<&'static str> {
    row.goals.iter().map(|goal| goal.id).find(|id| id.strip_prefix(row.id) == Some(end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sets::ALL;

    #[test]
    fn each_goal_that_compares_builds_is_measured() {
        for (id, switched) in [("SE14", 6), ("UP14", 5), ("UP15", 3), ("QP14", 1)] {
            let row = ALL.iter().flat_map(|set| set.rows).find(|row| row.id == id).unwrap();
            let compared = row.goals.iter().filter(|goal| goal.bounds == BOUND).count();
            assert_eq!((loads_of(row).len(), compared), (switched, switched + 1), "{id}");
            assert!(goal_of(row, STREAMS).is_some(), "{id}");
        }
        assert_eq!(loads_of(&crate::sets::hs::hs3::ROW).len(), LOADS.len());
    }
}
