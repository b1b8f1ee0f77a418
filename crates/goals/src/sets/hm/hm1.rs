//! HM1: this harness under fault.

use crate::figure::Bound;
use crate::lab::Lab;
use crate::reason::Measured;
use crate::row::{Goal, Results, Row};

pub(super) const ROW: Row = Row {
    id: "HM1",
    what: "no row is met with a failing bench, a stale file, null, NaN, or without its rival",
    on: "every row of every set, on a machine that fails",
    goals: &[Goal::new(
        "HM1",
        &[
            Bound::AtLeast(30.0, "tests passed"),
            Bound::AtLeast(1.0, "rows"),
            Bound::Exactly(0.0, "met under fault"),
        ],
    )],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let tests = lab.cargo_test("-p taut-goals -- --nocapture")?;
    let rows = tests.text.number_between("faults: ", " rows driven")?;
    let met = tests.text.numbers_between("rows driven, ", " met under fault")?.iter().sum::<f64>();
    results.record("HM1", [tests.passed, rows, met], "");
    Ok(())
}
