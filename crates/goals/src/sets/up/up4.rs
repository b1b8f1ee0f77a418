//! UP4: a switch outside that floods and reflects.

use crate::figure::{Bound, shown};
use crate::lab::Lab;
use crate::reason::{Measured, require};
use crate::row::{Goal, Results, Row};

pub(super) const ROW: Row = Row {
    id: "UP4",
    what: "a hub outside sends each frame to both uplinks of a team, and what a port has sent back to both",
    on: "two TAP devices as cards, under port-id, source-mac, explicit, and with a standby; ip-hash is one channel",
    goals: &[Goal::new(
        "UP4",
        &[
            Bound::AtLeast(1_000_000.0, "frames"),
            Bound::Exactly(0.0, "duplicates"),
            Bound::Exactly(0.0, "missing"),
            Bound::Exactly(0.0, "where they do not belong"),
            Bound::Exactly(0.0, "sent on other uplinks"),
        ],
    )],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let frames = lab.pick(520_000_u64, 20_000);
    let program = lab.example("taut-tests", "uplinks")?;
    let command = lab.in_checkout(program).args(format!("flood {frames}")).record("flood");
    let found = lab.run(&command)?.stdout.json()?;
    let number = |name: &str| found.number(name);
    require(number("frames")? > frames as f64 || lab.machine().is_stand_in(), "the program lost count")?;
    let values = [
        number("frames")?,
        number("duplicates")?,
        number("missing")?,
        number("strays")?,
        number("on_others")?,
    ];
    results.record("UP4", values, format!("{} policies", shown(number("policies")?)));
    Ok(())
}
