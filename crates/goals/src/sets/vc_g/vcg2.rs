//! VC-G2: five sessions beside one, between microguests.

use super::cells::Cell;
use super::guests::{BUFFER, bench, start_daemon_of_micros, two_micros};
use crate::figure::{Bound, Value, shown};
use crate::lab::Lab;
use crate::reason::Measured;
use crate::rounds::paired;
use crate::row::{Goal, Results, Row};

const ONE: Cell = Cell::of("vsock", 65536);
const FIVE: Cell = Cell { sessions: 5, ..ONE };

pub(super) const ROW: Row = Row {
    id: "VC-G2",
    what: "five sessions beside one",
    on: "two microguests",
    goals: &[Goal::new(
        "VC-G2",
        &[Bound::AtLeast(1.0, "x one session"), Bound::AtLeast(0.95, "least fairness")],
    )],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let (seconds, rounds) = lab.pick((2, 7), (1, 2));
    start_daemon_of_micros(lab, &format!("{BUFFER},rx=16,tx=16"))?;
    two_micros(lab)?;
    let words = "a b --message 64KiB --socket-size 256KiB --sessions 1,5";
    let report = bench(lab, &format!("{words} --duration {seconds} --repeat {rounds}"))?;
    let gain = paired(&FIVE.figures(&report, "mbit_s")?, &ONE.figures(&report, "mbit_s")?)?;
    let fairness = Value::least(&FIVE.figures(&report, "fairness")?)?;
    let rates = [FIVE.gbit_s(&report)?, ONE.gbit_s(&report)?].map(shown);
    results.record("VC-G2", [gain, fairness], format!("five {} Gbit/s, one {}", rates[0], rates[1]));
    Ok(())
}
