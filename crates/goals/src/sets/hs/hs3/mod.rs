//! HS3: speed of this build beside the build of an old commit. Short samples alternate in the order
//! ABBA. Pairs are added until the 95 % interval of the median ratio is at most 2 % wide.

pub(in crate::sets) mod guests;
pub(in crate::sets) mod switch;

use super::before;
use super::cost::loads_of;
use crate::figure::{Bound, Value};
use crate::lab::Lab;
use crate::reason::Measured;
use crate::rounds::{Plan, Ratio, Rounds};
use crate::row::{Goal, Results, Row};

/// After ÷ before: 2 % slower at most.
const BOUND: &[Bound] = &[Bound::LowLimitAtLeast(0.98, "x")];

pub(super) const ROW: Row = Row {
    id: "HS3",
    what: "speed beside the build before the change of structure",
    on: "builds in alternation: switch, VMCI sockets and TCP of microguests (streams on one pCPU), a \
         latency-sensitive VM",
    goals: &[
        Goal::new("HS3-DP1-64", BOUND),
        Goal::new("HS3-DP2-256", BOUND),
        Goal::new("HS3-DP2-1518", BOUND),
        Goal::new("HS3-DP3-packed", BOUND),
        Goal::new("HS3-DP3-both", BOUND),
        Goal::new("HS3-DP5-traversal", BOUND),
        Goal::new("HS3-VC-G1", BOUND),
        Goal::new("HS3-VC-G3", BOUND),
        Goal::new("HS3-SK4-rr", BOUND),
        Goal::new("HS3-SK4-stream", BOUND),
        Goal::new("HS3-PL2", BOUND),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let old = before::programs(lab)?;
    let plan = Plan { least: 8, most: lab.pick(60, 10), width: 0.02 };
    switch::run(lab, results, plan, &old, &loads_of(&ROW))?;
    guests::run(lab, results, plan, &old)
}

/// The ratio of a figure. Higher is better: of times, it is before ÷ after.
fn watched(figure: &str) -> Ratio<'_> {
    let is_time = figure.ends_with("_ns") || figure.ends_with("_us");
    let (over, under) = if is_time { ("before", "after") } else { ("after", "before") };
    Ratio { over, under, figure }
}

/// Records the ratio of a goal.
fn record(results: &mut Results, goal: &str, rounds: &Rounds, figure: &str) -> Measured<()> {
    let Ratio { over, under, figure } = watched(figure);
    let ratio: Value = rounds.ratio(over, under, figure)?;
    let note = format!("CPUs {}, {} pairs dropped", rounds.state(), rounds.dropped());
    results.record(goal, [ratio], note);
    Ok(())
}
