//! DP2: 256 B and 1518 B one way, split rings.

use super::beside::{BOTH, BOTH_BY_LGEN, ON, measure};
use crate::figure::Bound;
use crate::lab::Lab;
use crate::lab::rig::{Generator, Rig};
use crate::reason::Measured;
use crate::row::{Goal, Results, Row};

const BOUNDS_256: &[Bound] =
    &[Bound::AtLeast(3.0, "x OVS"), Bound::AtLeast(2.0, "x floor"), Bound::Stated("Mpps")];
const BOUNDS_1518: &[Bound] =
    &[Bound::AtLeast(2.4, "x OVS"), Bound::AtLeast(2.0, "x floor"), Bound::Stated("Mpps")];

pub(super) const ROW: Row = Row {
    id: "DP2",
    what: "256 B and 1518 B one way, split rings, beside OVS-DPDK and DPDK's vhost",
    on: ON,
    goals: &[
        Goal::beside("DP2-256", BOUNDS_256, BOTH),
        Goal::beside("DP2-1518", BOUNDS_1518, BOTH),
        Goal::beside("DP2-256-lgen", BOUNDS_256, BOTH_BY_LGEN),
        Goal::beside("DP2-1518-lgen", BOUNDS_1518, BOTH_BY_LGEN),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    lab.with_rig(|lab, rig| {
        for (goal, generator, load) in [
            ("DP2-256", Generator::Taut, "one-way 256"),
            ("DP2-1518", Generator::Taut, "one-way 1518"),
            ("DP2-256-lgen", Generator::Lgen, "one-way 256"),
            ("DP2-1518-lgen", Generator::Lgen, "one-way 1518"),
        ] {
            if !results.has(goal) {
                let outcome = one(lab, rig, results, (goal, generator, load));
                results.settle(&[goal], outcome);
            }
        }
        Ok(())
    })
}

fn one(
    lab: &mut Lab,
    rig: &mut Rig,
    results: &mut Results,
    (goal, generator, load): (&str, Generator, &'static str),
) -> Measured<()> {
    let found = measure(lab, rig, generator, load)?;
    results.record(goal, [found.over_ovs, found.over_floor, found.rate], found.detail);
    Ok(())
}
