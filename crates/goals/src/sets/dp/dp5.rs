//! DP5: one traversal, polled, 64 B.

use super::beside::{FLOOR, ON, OVS, spread, state};
use crate::figure::Bound;
use crate::lab::Lab;
use crate::lab::rig::{Cell, Generator, Rig, Switch};
use crate::reason::Measured;
use crate::rounds::Rounds;
use crate::row::{Goal, Results, Row};

const P50: &str = "traversal.p50_ns";
const P99: &str = "traversal.p99_ns";
const P99_9: &str = "traversal.p99_9_ns";
const LOAD: &str = "traversal 64";

pub(super) const ROW: Row = Row {
    id: "DP5",
    what: "one traversal of 64 B, polled, beside DPDK's vhost and OVS-DPDK",
    on: ON,
    goals: &[
        Goal::beside("DP5-packed", &[Bound::AtMost(0.75, "x floor's p50 with split rings")], FLOOR),
        Goal::beside(
            "DP5-split",
            &[Bound::Below(1.0, "x floor's p50"), Bound::Below(1.0, "x p99"), Bound::AtMost(1.0, "x p99.9")],
            FLOOR,
        ),
        Goal::beside("DP5-ovs", &[Bound::Stated("x OVS's p50")], OVS),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    lab.with_rig(|lab, rig| {
        let outcome = if results.has("DP5-split") { Ok(()) } else { floor(lab, rig, results) };
        results.settle(&["DP5-packed", "DP5-split"], outcome);
        if results.has("DP5-ovs") {
            return Ok(());
        }
        let cells = [cell("split", Switch::taut(), LOAD), cell("ovs", Switch::OVS, LOAD)];
        let rounds = rig.compare(lab, &cells, None)?;
        results.record("DP5-ovs", [rounds.ratio("split", "ovs", P50)?], detail(&rounds, &["split", "ovs"])?);
        Ok(())
    })
}

fn cell(name: &'static str, switch: Switch, load: &'static str) -> Cell {
    Cell::new(name, switch, Generator::Taut, load)
}

fn floor(lab: &mut Lab, rig: &mut Rig, results: &mut Results) -> Measured<()> {
    let cells = [
        cell("packed", Switch::taut(), "traversal 64 --packed"),
        cell("split", Switch::taut(), LOAD),
        cell("floor", Switch::Vhost, LOAD),
    ];
    let rounds = rig.compare(lab, &cells, None)?;
    let said = detail(&rounds, &["packed", "split", "floor"])?;
    results.record("DP5-packed", [rounds.ratio("packed", "floor", P50)?], &said);
    let mut ratios = Vec::new();
    for figure in [P50, P99, P99_9] {
        ratios.push(rounds.ratio("split", "floor", figure)?);
    }
    results.record("DP5-split", ratios, said);
    Ok(())
}

/// Writes the percentiles of cells.
fn detail(rounds: &Rounds, cells: &[&str]) -> Measured<String> {
    let mut parts = Vec::new();
    for cell in cells {
        for (name, figure) in [("p50", P50), ("p99", P99), ("p99.9", P99_9)] {
            parts.push(format!("{cell} {name} {}", spread(&rounds.median(cell, figure)?, "ns")));
        }
    }
    parts.push(state(rounds));
    Ok(parts.join("; "))
}
