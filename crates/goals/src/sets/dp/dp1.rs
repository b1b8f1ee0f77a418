//! DP1: 64 B one way, split rings, with checks, lock, policy and statistics on.

use super::beside::{BOTH, BOTH_BY_LGEN, BOTH_BY_VGEN, ON, measure};
use crate::figure::{Bound, shown};
use crate::lab::Lab;
use crate::lab::rig::{Generator, Rig};
use crate::reason::Measured;
use crate::row::{Goal, Results, Row};

const LOAD: &str = "one-way 64";
const BOUNDS: &[Bound] = &[Bound::AtLeast(3.4, "x OVS"), Bound::Stated("Mpps"), Bound::Stated("x floor")];

pub(super) const ROW: Row = Row {
    id: "DP1",
    what: "64 B one way, split rings, beside OVS-DPDK and DPDK's vhost; costs of a frame",
    on: ON,
    goals: &[
        Goal::beside("DP1-taut", BOUNDS, BOTH),
        Goal::beside("DP1-lgen", BOUNDS, BOTH_BY_LGEN),
        Goal::beside(
            "DP1-vgen",
            &[Bound::AtLeast(20.0, "Mpps"), Bound::Stated("x OVS"), Bound::Stated("x floor")],
            BOTH_BY_VGEN,
        ),
        Goal::new(
            "DP1-cost",
            &[Bound::Below(0.0001, "allocations a frame"), Bound::Stated("system calls a frame")],
        ),
        Goal::new(
            "DP1-instructions",
            &[Bound::Stated("a frame, split rings"), Bound::Stated("a frame, packed rings")],
        ),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    lab.with_rig(|lab, rig| {
        for (goal, generator) in [("DP1-taut", Generator::Taut), ("DP1-lgen", Generator::Lgen)] {
            if !results.has(goal) {
                let outcome = beside(lab, rig, results, goal, generator);
                results.settle(&[goal], outcome);
            }
        }
        if !results.has("DP1-vgen") {
            let outcome = by_dpdk(lab, rig, results);
            results.settle(&["DP1-vgen"], outcome);
        }
        let outcome = cost(lab, rig, results);
        results.settle(&["DP1-cost"], outcome);
        Ok(())
    })?;
    let [split, packed] = ["split", "packed"].map(|format| lab.instructions_per_frame(format));
    results.record("DP1-instructions", [split?, packed?], "both device ends, without the switch");
    Ok(())
}

fn beside(
    lab: &mut Lab,
    rig: &mut Rig,
    results: &mut Results,
    goal: &str,
    generator: Generator,
) -> Measured<()> {
    let found = measure(lab, rig, generator, LOAD)?;
    results.record(goal, [found.over_ovs, found.rate, found.over_floor], found.detail);
    Ok(())
}

fn by_dpdk(lab: &mut Lab, rig: &mut Rig, results: &mut Results) -> Measured<()> {
    let found = measure(lab, rig, Generator::Vgen, LOAD)?;
    let detail = format!(
        "DPDK's own generator ends at about 21 Mpps, so that its ratios are smaller; {}",
        found.detail
    );
    results.record("DP1-vgen", [found.rate, found.over_ovs, found.over_floor], detail);
    Ok(())
}

fn cost(lab: &mut Lab, rig: &mut Rig, results: &mut Results) -> Measured<()> {
    let counted = rig.allocations(lab)?;
    // Balancing the workers allocates ten times a second, whatever the number of frames.
    let a_frame = [counted.allocations / counted.frames, counted.system_calls / counted.frames];
    let [frames, allocations, calls] = [counted.frames, counted.allocations, counted.system_calls].map(shown);
    let detail =
        format!("{allocations} allocations and {calls} system calls for {frames} frames in a second");
    results.record("DP1-cost", a_frame, detail);
    Ok(())
}
