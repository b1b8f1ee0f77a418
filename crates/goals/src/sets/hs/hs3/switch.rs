//! Loads on the switch. The daemons of both builds are started once for all loads; while
//! one is measured, daemon and fabric of the other are stopped (SIGSTOP). One load generator, this
//! build's, loads both. A sample is the median of five repeats of 0.1 s.

use std::path::Path;

use super::{record, watched};
use crate::lab::Lab;
use crate::lab::rig::{Cell, Generator, Pace, Rig, Switch};
use crate::reason::Measured;
use crate::rounds::Plan;
use crate::row::Results;

/// Goal, load, figure.
pub(in crate::sets) type Load = (&'static str, &'static str, &'static str);

/// Compares loads on the switch with those of the build in the folder `old`.
pub(in crate::sets) fn run(
    lab: &mut Lab,
    results: &mut Results,
    plan: Plan,
    old: &Path,
    loads: &[Load],
) -> Measured<()> {
    lab.with_rig_at(Pace { repeats: 5, seconds: 0.1, plan }, |lab, rig| {
        for &(goal, load, figure) in loads {
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
