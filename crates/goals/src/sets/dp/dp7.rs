//! DP7: policies on beside policies off. Counters, lock, memory checks and the look-up of the
//! receiver are always on.

use super::beside::{ON, rates};
use crate::figure::Bound;
use crate::lab::Lab;
use crate::lab::rig::{Cell, Generator, PortGroup, Switch};
use crate::reason::Measured;
use crate::rounds::Ratio;
use crate::row::{Goal, Results, Row};

const LOAD: &str = "one-way 64";

pub(super) const ROW: Row = Row {
    id: "DP7",
    what: "an access VLAN and rejections, beside everything accepted",
    on: ON,
    goals: &[Goal::new("DP7", &[Bound::AtLeast(0.95, "x everything accepted")])],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    lab.with_rig(|lab, rig| {
        let cells = [
            Cell::new("policies", Switch::on(PortGroup::Guarded), Generator::Taut, LOAD),
            Cell::new("accepted", Switch::on(PortGroup::Open), Generator::Taut, LOAD),
        ];
        let watched = Ratio { over: "policies", under: "accepted", figure: "mpps" };
        let rounds = rig.compare(lab, &cells, Some(watched))?;
        let detail = rates(&rounds, &["policies", "accepted"])?;
        results.record("DP7", [rounds.ratio("policies", "accepted", "mpps")?], detail);
        Ok(())
    })
}
