//! PG9: the dashboard and the alerts that are shipped.

use crate::figure::Bound;
use crate::lab::Lab;
use crate::reason::Measured;
use crate::row::{Goal, Results, Row};

pub(super) const ROW: Row = Row {
    id: "PG9",
    what: "promtool checks configuration, rules and metrics, and tests that each alert fires and clears; Prometheus \
           collects from a daemon under load, and each query of the dashboard and the alerts is asked",
    on: "the host tier's tests `monitoring`, which fail if promtool has anything to say or a query has no data",
    goals: &[Goal::new(
        "PG9",
        &[
            Bound::AtLeast(1.0, "alerts"),
            Bound::AtLeast(25.0, "queries with data"),
            Bound::AtLeast(3.0, "tests passed"),
        ],
    )],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let words = "test -p taut-tests --test host -- --test-threads=1 --nocapture monitoring::";
    let tests = lab.cargo_test(words)?;
    let count = |before: &str| tests.text.number_between(before, "");
    results.record(
        "PG9",
        [count("alerts that fire and clear: ")?, count("queries with data: ")?, tests.passed],
        "",
    );
    Ok(())
}
