//! HM3: the defects that a new user found in the first hour, each with a test.

use crate::figure::Bound;
use crate::lab::Lab;
use crate::reason::Measured;
use crate::row::{Goal, Results, Row};

pub(super) const ROW: Row = Row {
    id: "HM3",
    what: "defects that a new user found in the first hour",
    on: "the tests named `first_hour` of all crates and of the host tier",
    goals: &[
        Goal::new("HM3-unit", &[Bound::AtLeast(1.0, "tests passed")]),
        Goal::new("HM3-host", &[Bound::AtLeast(1.0, "tests passed")]),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let unit = lab.cargo_test("--workspace --exclude taut-tests first_hour");
    let unit = unit.map(|tests| results.record("HM3-unit", [tests.passed], ""));
    results.settle(&["HM3-unit"], unit);
    let host = lab.cargo_test("-p taut-tests --test host -- --test-threads=1 first_hour")?;
    results.record("HM3-host", [host.passed], "");
    Ok(())
}
