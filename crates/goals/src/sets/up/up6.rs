//! UP6: many ports are announced after failover.

use crate::figure::{Bound, shown};
use crate::lab::Lab;
use crate::reason::{Measured, require};
use crate::row::{Goal, Results, Row};

pub(super) const ROW: Row = Row {
    id: "UP6",
    what: "1,000 ports are announced after their uplink has lost its link",
    on: "two TAP devices as cards, whose queues have 500 entries",
    goals: &[Goal::new(
        "UP6",
        &[
            Bound::AtMost(100.0, "ms for all"),
            Bound::Exactly(0.0, "ports not announced"),
            Bound::Stated("ms since the loss"),
        ],
    )],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let ports = lab.pick(1000_u64, 150);
    let program = lab.example("taut-tests", "uplinks")?;
    let command = lab.in_checkout(program).args(format!("announce {ports}")).record("announce");
    let found = lab.run(&command)?.stdout.json()?;
    require(found.count("ports")? == ports || lab.machine().is_stand_in(), "the program lost count")?;
    let number = |name: &str| found.number(name);
    let values = [number("all_ms")?, number("missing")?, number("since_loss_ms")?];
    results.record("UP6", values, format!("{ports} ports, {} frames", shown(number("frames")?)));
    Ok(())
}
