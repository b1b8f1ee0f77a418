//! Loads of HS3 on the switch. The daemons of both builds are started once for all loads; while the
//! fabric of one is measured, that of the other is stopped (SIGSTOP). One load generator, this
//! build's, loads both. A sample is the median of five repeats of 0.1 s.

use std::path::Path;

use super::{record, watched};
use crate::lab::Lab;
use crate::lab::rig::{Cell, Generator, Pace, Rig, Switch};
use crate::reason::Measured;
use crate::rounds::Plan;
use crate::row::Results;

/// Goal, load, figure.
const LOADS: [(&str, &str, &str); 6] = [
    ("HS3-DP1-64", "one-way 64", "mpps"),
    ("HS3-DP2-256", "one-way 256", "mpps"),
    ("HS3-DP2-1518", "one-way 1518", "mpps"),
    ("HS3-DP3-packed", "one-way 64 --packed", "mpps"),
    ("HS3-DP3-both", "both-ways 64 --packed", "mpps"),
    ("HS3-DP5-traversal", "traversal 64", "traversal.p50_ns"),
];

/// Compares all loads on the switch with those of the build in the folder `old`.
pub(super) fn run(lab: &mut Lab, results: &mut Results, plan: Plan, old: &Path) -> Measured<()> {
    lab.with_rig_at(Pace { repeats: 5, seconds: 0.1, plan }, |lab, rig| {
        for (goal, load, figure) in LOADS {
            let outcome = compare(lab, rig, results, old, (goal, load, figure));
            results.settle(&[goal], outcome);
        }
        Ok(())
    })
}

fn compare(
    lab: &mut Lab,
    rig: &mut Rig,
    results: &mut Results,
    old: &Path,
    (goal, load, figure): (&str, &'static str, &str),
) -> Measured<()> {
    let before = Switch::of_build("before", old.to_owned());
    let cells = [
        Cell::new("before", before, Generator::Taut, load),
        Cell::new("after", Switch::taut(), Generator::Taut, load),
    ];
    let rounds = rig.compare(lab, &cells, Some(watched(figure)))?;
    record(results, goal, &rounds, figure)
}
