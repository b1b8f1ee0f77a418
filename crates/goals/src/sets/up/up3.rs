//! UP3: the carrier of an active uplink is lost, and comes back.

use crate::figure::{Bound, shown};
use crate::lab::Lab;
use crate::reason::{Measured, require};
use crate::row::{Goal, Results, Row};

pub(super) const ROW: Row = Row {
    id: "UP3",
    what: "the carrier of an active uplink is lost and comes back while a port sends a frame each millisecond",
    on: "two TAP devices as cards, which the kernel tells of late; 30 of 100 times without tautd",
    goals: &[
        Goal::new("UP3-gap", &[Bound::AtMost(50.0, "ms p99"), Bound::AtMost(200.0, "ms at most")]),
        Goal::new("UP3-back", &[Bound::Exactly(0.0, "frames lost on the way back")]),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let (losses, dead) = lab.pick((100_u64, 30_u64), (10, 3));
    let program = lab.example("taut-tests", "uplinks")?;
    let command =
        lab.in_checkout(program).args(format!("failover {losses} {dead}")).preferred().record("failover");
    let found = lab.run(&command)?.stdout.json()?;
    require(found.count("losses")? == losses || lab.machine().is_stand_in(), "the program lost count")?;
    let [p50, p99, longest] = ["p50_ms", "p99_ms", "longest_ms"].map(|name| found.number(name));
    let detail = format!("{losses} losses, {dead} without tautd; p50 {} ms", shown(p50?));
    results.record("UP3-gap", [p99?, longest?], detail);
    results.record(
        "UP3-back",
        [found.number("lost_back")?],
        format!("{} frames", shown(found.number("frames")?)),
    );
    Ok(())
}
