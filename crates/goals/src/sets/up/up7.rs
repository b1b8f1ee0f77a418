//! UP7: network I/O control at an uplink that is too slow for its ports.

use crate::figure::{Bound, shown};
use crate::lab::Lab;
use crate::reason::{Measured, require};
use crate::row::{Goal, Results, Row};

pub(super) const ROW: Row = Row {
    id: "UP7",
    what: "shares of 1 : 2 : 4 with 64 B, 1518 B and segmented frames; a reservation under attack by 200 ports; a limit",
    on: "a TAP device as a card of 300 and of 1000 Mbit/s",
    goals: &[
        Goal::new(
            "UP7-shares",
            &[Bound::AtMost(3.0, "% from their shares"), Bound::Stated("% of the uplink")],
        ),
        Goal::new(
            "UP7-reservation",
            &[Bound::AtMost(1.0, "% from 300 Mbit/s"), Bound::Stated("% of the uplink")],
        ),
        Goal::new(
            "UP7-queueing",
            &[Bound::AtMost(1.0, "ms, p99"), Bound::Stated("ms, p50"), Bound::Stated("ms, p99.9")],
        ),
        Goal::new("UP7-limit", &[Bound::AtMost(1.0, "% from 50 Mbit/s")]),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let seconds = lab.pick(10_u64, 2);
    let program = lab.example("taut-tests", "uplinks")?;
    let command = lab.in_checkout(program).args(format!("shares {seconds}")).record("shares");
    let found = lab.run(&command)?.stdout.json()?;
    require(found.count("seconds")? == seconds || lab.machine().is_stand_in(), "the program lost count")?;
    let number = |name: &str| found.number(name);
    let detail = format!("over {seconds} s");
    let shares = [number("shares.off_percent")?, number("shares.used_percent")?];
    results.record("UP7-shares", shares, detail.clone());
    let reservation = [number("reservation.off_percent")?, number("reservation.used_percent")?];
    results.record("UP7-reservation", reservation, detail.clone());
    let queueing = ["p99_ms", "p50_ms", "p999_ms"].map(|name| number(&format!("reservation.{name}")));
    let [p99, p50, p999] = queueing;
    let [asked, arrived] = [number("reservation.asked")?, number("reservation.frames")?];
    let are_there = arrived >= 0.99 * asked || lab.machine().is_stand_in();
    require(are_there, "frames of the reserved class are missing")?;
    let frames = shown(arrived);
    results.record("UP7-queueing", [p99?, p50?, p999?], format!("{frames} frames"));
    results.record("UP7-limit", [number("limit.off_percent")?], detail);
    Ok(())
}
