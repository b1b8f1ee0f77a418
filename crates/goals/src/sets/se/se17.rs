//! SE17: a VM that reaches one of its limits. Nobody else is affected, and an event names the
//! limit.

use crate::figure::Bound;
use crate::lab::Lab;
use crate::reason::Measured;
use crate::row::{Goal, Results, Row};

pub(super) const ROW: Row = Row {
    id: "SE17",
    what: "a VM over its limit of memory, processes or descriptors",
    on: "control groups of this host, and version 2 of a nested host",
    goals: &[
        Goal::new("SE17-host", &[Bound::AtLeast(3.0, "tests passed")]),
        Goal::new("SE17-nested", &[Bound::AtLeast(1.0, "test passed")]),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let outcome = tests(lab, results, "SE17-host", "host", "limits::");
    results.settle(&["SE17-host"], outcome);
    tests(lab, results, "SE17-nested", "guest", "nested::limits_with_cgroup_v2")
}

/// Runs the tests of a tier whose names have `filter` in them.
fn tests(lab: &mut Lab, results: &mut Results, goal: &str, tier: &str, filter: &str) -> Measured<()> {
    let words = format!("-p taut-tests --test {tier} -- --test-threads=1 {filter}");
    let tests = lab.cargo_test(words)?;
    results.record(goal, [tests.passed], "only that VM is affected, with an event that names the limit");
    Ok(())
}
