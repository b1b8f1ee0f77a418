//! HM2: the tests with each prerequisite hidden in turn.

use crate::figure::Bound;
use crate::lab::Lab;
use crate::reason::Measured;
use crate::row::{Goal, Results, Row};

pub(super) const ROW: Row = Row {
    id: "HM2",
    what: "a test whose prerequisite is hidden fails and names it, unless the allow list does",
    on: "the tests, without the KVM node, cgroup v1, huge pages, each image, and IPv6 in turn",
    goals: &[Goal::new("HM2", &[Bound::AtLeast(7.0, "prerequisites hidden")])],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let tests = lab.cargo_test("-p taut-tests --test hidden -- --test-threads=1")?;
    results.record("HM2", [tests.passed], "one test each");
    Ok(())
}
