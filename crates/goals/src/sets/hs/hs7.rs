//! HS7: one change of five settings while the daemon is killed at random.

use crate::figure::Bound;
use crate::lab::Lab;
use crate::reason::Measured;
use crate::row::{Goal, Results, Row};

pub(super) const ROW: Row = Row {
    id: "HS7",
    what: "a change of five settings happens wholly or not at all while the daemon is killed",
    on: "the host test of settings",
    goals: &[Goal::new("HS7", &[Bound::AtLeast(1.0, "tests passed"), Bound::AtLeast(20.0, "kills")])],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let kills = lab.pick(200, 20);
    let words = "test -p taut-tests --test host -- --test-threads=1 --nocapture settings";
    let command = lab.in_checkout("cargo").args(words).record("cargo-test");
    let tests = lab.tests(&command.env("TAUT_SET_KILLS", kills.to_string()))?;
    let killed = tests.text.number_between(" of ", " requests took effect")?;
    let detail = tests.text.between(" requests took effect, ", "")?;
    results.record("HS7", [tests.passed, killed], detail);
    Ok(())
}
