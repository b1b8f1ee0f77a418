//! SE17: a VM that reaches one of its limits. Nobody else is affected, and an event names the limit.

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
    for (goal, tier, filter, detail) in [
        ("SE17-host", "host", "limits::", "only that VM is affected, with an event that names the limit"),
        ("SE17-nested", "guest", "limits::", "the same with cgroup v2"),
    ] {
        let words = format!("-p taut-tests --test {tier} -- --test-threads=1 {filter}");
        let outcome = lab.cargo_test(words).map(|tests| results.record(goal, [tests.passed], detail));
        results.settle(&[goal], outcome);
    }
    Ok(())
}
