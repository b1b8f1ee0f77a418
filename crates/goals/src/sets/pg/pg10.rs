//! PG10: the way from a complaint to its cause.

use crate::figure::Bound;
use crate::lab::Lab;
use crate::reason::Measured;
use crate::row::{Goal, Results, Row};

pub(super) const ROW: Row = Row {
    id: "PG10",
    what: "six prepared faults behind \"my VM is slow\" and \"why is my link down\": steps to the cause, on the page \
           and in the terminal",
    on: "the host tier's tests `causes`, which print each step",
    goals: &[Goal::new(
        "PG10",
        &[Bound::AtMost(3.0, "steps of the longest path"), Bound::AtLeast(12.0, "paths")],
    )],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let words = "test -p taut-tests --test host -- --test-threads=1 --nocapture causes::";
    let tests = lab.cargo_test(words)?;
    let steps = tests.text.numbers_between("path of ", " steps")?;
    let longest = steps.iter().copied().fold(0.0, f64::max);
    results.record("PG10", [longest, steps.len() as f64], format!("{} tests", tests.passed));
    Ok(())
}
