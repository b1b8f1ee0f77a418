//! SK7: bad input and hostile guests, by the tests that cover them.

use crate::figure::Bound;
use crate::lab::Lab;
use crate::reason::Measured;
use crate::row::{Goal, Results, Row};

pub(super) const ROW: Row = Row {
    id: "SK7",
    what: "bad input and hostile guests are refused with a reason, and neighbours go on",
    on: "the host tests that cover them",
    goals: &[Goal::new("SK7", &[Bound::AtLeast(1.0, "tests passed")])],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let tests = lab.cargo_test("-q -p taut-tests --test host -- --test-threads=1 input hostile")?;
    results.record("SK7", [tests.passed], "a test that fails or is skipped is no result");
    Ok(())
}
