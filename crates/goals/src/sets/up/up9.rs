//! UP9: the fabric is replaced while frames pass an uplink.

use crate::figure::{Bound, shown};
use crate::lab::Lab;
use crate::reason::{Measured, require};
use crate::row::{Goal, Results, Row};

pub(super) const ROW: Row = Row {
    id: "UP9",
    what: "the fabric is killed and upgraded 200 times under a frame each ms in both directions; fabric and daemon \
           are killed together 200 times under a datagram and a message on TCP each ms",
    on: "a TAP device as card; each ring belongs to the socket, so no frame of it can be leaked; veth for both processes",
    goals: &[
        Goal::new("UP9-kill", &[Bound::AtMost(15.0, "ms gap, p50"), Bound::Stated("ms at most")]),
        Goal::new("UP9-upgrade", &[Bound::AtMost(15.0, "ms gap, p50"), Bound::Stated("ms at most")]),
        Goal::new("UP9-carrier", &[Bound::Exactly(0.0, "changes of the carrier")]),
        Goal::new(
            "UP9-both",
            &[
                Bound::AtMost(1500.0, "ms gap at most"),
                Bound::Stated("ms without a byte of TCP at most"),
                Bound::Exactly(0.0, "changes of the carrier"),
            ],
        ),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let times = lab.pick(200_u64, 4);
    let program = lab.example("taut-tests", "uplinks")?;
    let command = lab.in_checkout(program).args(format!("restart {times}")).preferred().record("restart");
    let found = lab.run(&command)?.stdout.json()?;
    let [kill, upgrade] = ["kill", "upgrade"].map(|name| found.at(name));
    for (goal, found) in [("UP9-kill", kill?), ("UP9-upgrade", upgrade?)] {
        require(found.count("times")? == times / 2 || lab.machine().is_stand_in(), "the program lost count")?;
        let values = [found.number("p50_ms")?, found.number("longest_ms")?];
        results.record(goal, values, format!("{} times", shown(found.number("times")?)));
    }
    results.record(
        "UP9-carrier",
        [found.number("carrier_changes")?],
        format!("{} frames", shown(found.number("frames")?)),
    );
    both(lab, results)
}

/// Measures the end of both processes.
fn both(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let times = lab.pick(200_u64, 1);
    let program = lab.example("taut-tests", "uplinks")?;
    let command = lab.in_checkout(program).args(format!("both {times}")).preferred().record("both");
    let found = lab.run(&command)?.stdout.json()?;
    require(found.count("times")? == times || lab.machine().is_stand_in(), "the program lost count")?;
    let values = ["longest_ms", "tcp_longest_ms", "carrier_changes"].map(|name| found.number(name));
    let [longest, stream, changes] = values;
    let detail = format!("{times} times, p50 {} ms", shown(found.number("p50_ms")?));
    results.record("UP9-both", [longest?, stream?, changes?], detail);
    Ok(())
}
