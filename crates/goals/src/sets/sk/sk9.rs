//! SK9: the documented arrows match the code.

use crate::figure::Bound;
use crate::lab::Lab;
use crate::reason::Measured;
use crate::row::{Goal, Results, Row};

pub(super) const ROW: Row = Row {
    id: "SK9",
    what: "the documented arrows between crates and folders",
    on: "the code",
    goals: &[Goal::new("SK9", &[Bound::AtLeast(1.0, "tests passed")])],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let tests = lab.cargo_test("-q -p taut-tests --test architecture")?;
    results.record("SK9", [tests.passed], "");
    Ok(())
}
