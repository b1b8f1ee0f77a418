//! SE8: what local users may do to the daemon, and the record of what they did.

use crate::figure::Bound;
use crate::lab::{Lab, Tests};
use crate::reason::Measured;
use crate::row::{Goal, Results, Row};

/// Changes that have to be in the record.
const CHANGES: &str = "10000";

pub(super) const ROW: Row = Row {
    id: "SE8",
    what: "user `nobody` cannot lock, read or connect; a viewer cannot write; every change is recorded",
    on: "a daemon with a roles file, and programs under other users",
    goals: &[
        Goal::new("SE8-nobody", &[Bound::Exactly(1.0, "test passed"), Bound::Exactly(0.0, "tests failed")]),
        Goal::new(
            "SE8-refused",
            &[
                Bound::AtLeast(14.0, "routes that write"),
                Bound::Exactly(100.0, "% refused"),
                Bound::Exactly(0.0, "tests failed"),
            ],
        ),
        Goal::new(
            "SE8-recorded",
            &[
                Bound::AtLeast(10_000.0, "changes"),
                Bound::Exactly(100.0, "% recorded"),
                Bound::Exactly(0.0, "tests failed"),
            ],
        ),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let test = |lab: &Lab, words: &str| {
        let command = lab.in_checkout("cargo").args("test -p taut-tests --test host --");
        command.args("--test-threads=1 --nocapture").args(words).env("TAUT_AUDIT_CHANGES", CHANGES)
    };
    let command = test(lab, "access::nobody_can_lock_read_or_connect").record("nobody");
    let tests = lab.tests_that_may_fail(&command)?;
    results.record("SE8-nobody", [tests.passed, tests.failed], "lock, store, audit log, socket of the API");
    let command = test(lab, "access::every_write_of_a_viewer_is_refused").record("refused");
    let Tests { text, failed, .. } = lab.tests_that_may_fail(&command)?;
    let tried = text.number_between("routes that write: ", " tried")?;
    let refused = text.number_between(" tried, ", " refused")?;
    let detail = "by the table of the router, all recorded";
    results.record("SE8-refused", [tried, 100.0 * refused / tried, failed], detail);
    let command = test(lab, "access::every_change_is_recorded_with_its_caller").record("recorded");
    let Tests { text, failed, .. } = lab.tests_that_may_fail(&command)?;
    let changes = text.number_between("audit: ", " changes in ")?;
    let recorded = text.number_between("; recorded: ", " with their caller")?;
    let detail = "by four clients at once, each with its caller, kept by a killed daemon";
    results.record("SE8-recorded", [changes, 100.0 * recorded / changes, failed], detail);
    Ok(())
}
