//! DP4: 65536 flows from and to 100 MACs behind each port, beside one flow. All frames are written
//! beforehand, each in a buffer of its own, so that flows cost the generator nothing. One flow has
//! as many buffers, and the switch has to be its limit. Bursts of 64, as the switch makes them
//! itself, cost the generator less than the usual ones.

use super::beside::{ON, OVS, rates};
use crate::figure::{Bound, Value, median, shown};
use crate::lab::Lab;
use crate::lab::rig::{Cell, Generator, PortGroup, Rig, Switch};
use crate::reason::{Measured, require};
use crate::rounds::Rounds;
use crate::row::{Goal, Results, Row};

const ONE: &str = "one-way 64 --burst 64 --prepared 65536";
const THOUSAND: &str = "one-way 64 --burst 64 --prepared 65536 --flows 1024 --macs 100";
const MANY: &str = "one-way 64 --burst 64 --prepared 65536 --flows 65536 --macs 100";

pub(super) const ROW: Row = Row {
    id: "DP4",
    what: "65536 flows and 100 MACs behind each port, beside one flow",
    on: ON,
    goals: &[
        Goal::new("DP4", &[Bound::Below(10.0, "% less than one flow")]),
        Goal::beside("DP4-ovs", &[Bound::Stated("% less than one flow")], OVS),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    lab.with_rig(|lab, rig| {
        for (goal, switch) in [("DP4", Switch::on(PortGroup::Learning)), ("DP4-ovs", Switch::OVS)] {
            if !results.has(goal) {
                let outcome = flows(lab, rig, results, (goal, &switch));
                results.settle(&[goal], outcome);
            }
        }
        Ok(())
    })
}

fn flows(
    lab: &mut Lab,
    rig: &mut Rig,
    results: &mut Results,
    (goal, switch): (&str, &Switch),
) -> Measured<()> {
    let cells = [("one flow", ONE), ("1024 flows", THOUSAND), ("65536 flows", MANY)]
        .map(|(name, load)| Cell::new(name, switch.clone(), Generator::Taut, load));
    let rounds = rig.compare(lab, &cells, None)?;
    require_full(&rounds, "one flow")?;
    let ratios = rounds.ratios("65536 flows", "one flow", "mpps")?;
    let less: Vec<f64> = ratios.iter().map(|ratio| 100.0 * (1.0 - ratio)).collect();
    let detail = rates(&rounds, &["one flow", "1024 flows", "65536 flows"])?;
    results.record(goal, [Value::median(&less)?], detail);
    Ok(())
}

/// Requires that the switch was the limit of the baseline. A generator that is slower than the
/// switch would hide what flows cost.
fn require_full(rounds: &Rounds, cell: &str) -> Measured<()> {
    let full = median(&rounds.figures(cell, "ring_full_percent")?)?;
    let reason = format!("the generator was the limit of {cell}: ring full in {} % of looks", shown(full));
    require(full >= 90.0, reason)
}
