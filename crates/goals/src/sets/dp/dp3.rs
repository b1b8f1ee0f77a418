//! DP3: packed rings, 64 B: one way beside OVS-DPDK, and both ways beside one way.

use super::beside::{ON, OVS, TAUT_TO_OVS, rates};
use crate::figure::Bound;
use crate::lab::Lab;
use crate::lab::rig::{Cell, Generator, Rig, Switch};
use crate::reason::Measured;
use crate::row::{Goal, Results, Row};

const ONE_WAY: &str = "one-way 64 --packed";

pub(super) const ROW: Row = Row {
    id: "DP3",
    what: "64 B, packed rings, beside OVS-DPDK, and both ways beside one way",
    on: ON,
    goals: &[
        Goal::beside("DP3-packed", &[Bound::AtLeast(2.0, "x OVS")], OVS),
        Goal::new("DP3-both", &[Bound::AtLeast(1.0, "x one way")]),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    lab.with_rig(|lab, rig| {
        let outcome = both(lab, rig, results);
        results.settle(&["DP3-both"], outcome);
        if results.has("DP3-packed") {
            return Ok(());
        }
        let cells = [
            Cell::new("taut", Switch::taut(), Generator::Taut, ONE_WAY),
            Cell::new("ovs", Switch::OVS, Generator::Taut, ONE_WAY),
        ];
        let rounds = rig.compare(lab, &cells, Some(TAUT_TO_OVS))?;
        let detail = rates(&rounds, &["taut", "ovs"])?;
        results.record("DP3-packed", [rounds.ratio("taut", "ovs", "mpps")?], detail);
        Ok(())
    })
}

fn both(lab: &mut Lab, rig: &mut Rig, results: &mut Results) -> Measured<()> {
    let cell = |name, load| Cell::new(name, Switch::taut(), Generator::Taut, load);
    let cells = [
        cell("both ways", "both-ways 64 --packed"),
        cell("one way", ONE_WAY),
        cell("both ways, split", "both-ways 64"),
    ];
    let rounds = rig.compare(lab, &cells, None)?;
    let detail = rates(&rounds, &["both ways", "one way", "both ways, split"])?;
    results.record("DP3-both", [rounds.ratio("both ways", "one way", "mpps")?], detail);
    Ok(())
}
