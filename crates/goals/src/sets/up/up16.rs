//! UP16: an uplink whose link is up but whose path is dead.

use crate::figure::{Bound, shown};
use crate::lab::Lab;
use crate::reason::{Measured, require};
use crate::row::{Goal, Results, Row};

pub(super) const ROW: Row = Row {
    id: "UP16",
    what: "the path of an uplink dies although its link stays; then it comes and goes for ten minutes, 1 s of 4",
    on: "TAP devices as cards: two and a gateway, three and beacons",
    goals: &[
        Goal::new(
            "UP16-gateway",
            &[Bound::AtMost(3000.0, "ms until left"), Bound::Exactly(0.0, "changes afterwards")],
        ),
        Goal::new(
            "UP16-beacon",
            &[Bound::AtMost(3000.0, "ms until left"), Bound::Exactly(0.0, "changes afterwards")],
        ),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let (times, seconds) = lab.pick((10_u64, 600_u64), (1, 20));
    let program = lab.example("taut-tests", "uplinks")?;
    let command = lab.in_checkout(program).args(format!("path {times} {seconds}")).record("path");
    let found = lab.run(&command)?.stdout.json()?;
    for (goal, name) in [("UP16-gateway", "gateway"), ("UP16-beacon", "beacon")] {
        let found = found.at(name)?;
        require(found.count("times")? == times || lab.machine().is_stand_in(), "the program lost count")?;
        let values = [found.number("longest_ms")?, found.number("changes")?];
        results.record(goal, values, format!("{times} times, then {} s", shown(found.number("seconds")?)));
    }
    Ok(())
}
