//! DP14: the machine's other state, in which a cache line takes five times as long between the
//! cores. It comes and goes by itself.

use super::beside::{FLOOR, ON, rates};
use crate::figure::Bound;
use crate::lab::Lab;
use crate::lab::rig::{Cell, Generator, Rig, Switch};
use crate::reason::{Measured, require};
use crate::rounds::{Ratio, State};
use crate::row::{Goal, Results, Row};

const BOUND: &[Bound] = &[Bound::AtLeast(1.0, "x floor")];

pub(super) const ROW: Row = Row {
    id: "DP14",
    what: "throughput beside DPDK's vhost while the cores are far apart",
    on: ON,
    goals: &[
        Goal::beside("DP14-64", BOUND, FLOOR),
        Goal::beside("DP14-256", BOUND, FLOOR),
        Goal::beside("DP14-1518", BOUND, FLOOR),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    Rig::require_far(lab)?;
    lab.with_rig(|lab, rig| {
        for (goal, load) in
            [("DP14-64", "one-way 64"), ("DP14-256", "one-way 256"), ("DP14-1518", "one-way 1518")]
        {
            let outcome = one(lab, rig, results, (goal, load));
            results.settle(&[goal], outcome);
        }
        Ok(())
    })
}

fn one(
    lab: &mut Lab,
    rig: &mut Rig,
    results: &mut Results,
    (goal, load): (&str, &'static str),
) -> Measured<()> {
    let cells = [
        Cell::new("taut", Switch::taut(), Generator::Taut, load),
        Cell::new("floor", Switch::Vhost, Generator::Taut, load),
    ];
    let watched = Ratio { over: "taut", under: "floor", figure: "mpps" };
    let rounds = rig.compare(lab, &cells, Some(watched))?;
    require(rounds.state() != State::Near, "the cores came near each other meanwhile")?;
    results.record(goal, [rounds.ratio("taut", "floor", "mpps")?], rates(&rounds, &["taut", "floor"])?);
    Ok(())
}
