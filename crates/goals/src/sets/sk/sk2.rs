//! SK2: the tests from a fresh clone.

use crate::figure::Bound;
use crate::lab::Lab;
use crate::reason::Measured;
use crate::row::{Goal, Results, Row};

pub(super) const ROW: Row = Row {
    id: "SK2",
    what: "`make test`",
    on: "a fresh clone",
    goals: &[Goal::new("SK2", &[Bound::AtMost(25.0, "min"), Bound::AtLeast(1.0, "tests passed")])],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    lab.takes_a_full_run("make test runs by itself")?;
    let clone = lab.clone_checkout()?;
    let command = lab.in_checkout("make").args("TARGET=target test").folder(clone);
    let mut command = command.without_env("CARGO_TARGET_DIR").record("make-test");
    if let Some(allowed) = lab.machine().variable("TAUT_ALLOW_SKIP") {
        lab.note(format!("tests may be skipped for want of: {allowed}"));
        command = command.env("TAUT_ALLOW_SKIP", allowed);
    }
    let tests = lab.tests(&command)?;
    results.record("SK2", [tests.took.as_secs_f64() / 60.0, tests.passed], "");
    Ok(())
}
