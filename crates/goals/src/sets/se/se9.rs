//! SE9: system calls of the fabric.

use crate::figure::Bound;
use crate::lab::Lab;
use crate::reason::Measured;
use crate::row::{Goal, Results, Row};

pub(super) const ROW: Row = Row {
    id: "SE9",
    what: "every system call that the fabric does not need ends it",
    on: "numbers 0 to 547 with and without the x32 bit, each in a process of its own",
    goals: &[Goal::new("SE9", &[Bound::AtLeast(6.0, "tests passed")])],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let tests = lab.cargo_test("-p taut-fabric --lib sandbox::tests")?;
    results.record("SE9", [tests.passed], "at most 45 calls, and 60 % of them check arguments");
    Ok(())
}
