//! HS8: `.ci/run` on a clean clone.

use crate::figure::Bound;
use crate::lab::Lab;
use crate::reason::Measured;
use crate::row::{Goal, Results, Row};
use crate::sets::ci;

pub(super) const ROW: Row = Row {
    id: "HS8",
    what: "`.ci/run`",
    on: "a clean clone",
    goals: &[Goal::new("HS8", &[Bound::Below(30.0, "min"), Bound::AtLeast(1.0, "tests passed")])],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let tests = ci::run(lab)?;
    results.record("HS8", [tests.took.as_secs_f64() / 60.0, tests.passed], "");
    Ok(())
}
