//! UP7: network I/O control at an uplink that is too slow for its ports.

use crate::figure::{Bound, shown};
use crate::lab::Lab;
use crate::reason::{Measured, require};
use crate::row::{Goal, Results, Row};

pub(super) const ROW: Row = Row {
    id: "UP7",
    what: "shares of 1 : 2 : 4 with 64 B, 1518 B and segmented frames; a reservation under attack by 200 ports, of \
           which 90 send 64 B, 20 segmented and 90 1518 B frames, or 4, 20 and 176 (`long`); a limit",
    on: "a TAP device as a card of 300 and of 1000 Mbit/s; the fabric has a CPU of its own and the priority that it gets \
         while a VM owns pCPUs",
    goals: &[
        Goal::new(
            "UP7-shares",
            &[Bound::AtMost(3.0, "% from their shares"), Bound::Stated("% of the uplink")],
        ),
        Goal::new("UP7-reservation", RESERVATION),
        Goal::new("UP7-queueing", QUEUEING),
        Goal::new("UP7-reservation-long", RESERVATION),
        Goal::new("UP7-queueing-long", QUEUEING),
        Goal::new("UP7-limit", &[Bound::AtMost(1.0, "% from 50 Mbit/s")]),
    ],
    run,
};

const RESERVATION: &[Bound] = &[Bound::AtMost(1.0, "% from 300 Mbit/s"), Bound::Stated("% of the uplink")];
const QUEUEING: &[Bound] =
    &[Bound::AtMost(1.0, "ms, p99"), Bound::Stated("ms, p50"), Bound::Stated("ms, p99.9")];

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
    for (attack, reservation, queueing) in
        [("short", "UP7-reservation", "UP7-queueing"), ("long", "UP7-reservation-long", "UP7-queueing-long")]
    {
        let number = |name: &str| number(&format!("{attack}.{name}"));
        let [asked, arrived] = [number("asked")?, number("frames")?];
        let are_there = arrived >= 0.99 * asked || lab.machine().is_stand_in();
        require(are_there, "frames of the reserved class are missing")?;
        results.record(reservation, [number("off_percent")?, number("used_percent")?], detail.clone());
        let times = [number("p99_ms")?, number("p50_ms")?, number("p999_ms")?];
        let look = shown(number("look_p99_ms")?);
        let detail =
            format!("{} frames; p99 of the time between two looks outside {look} ms", shown(arrived));
        results.record(queueing, times, detail);
    }
    results.record("UP7-limit", [number("limit.off_percent")?], detail);
    Ok(())
}
