//! SE8: what local users may do to the daemon, and the record of what they did.

use crate::figure::Bound;
use crate::lab::Lab;
use crate::reason::Measured;
use crate::row::{Goal, Results, Row};

/// Changes that have to be in the record.
const CHANGES: &str = "10000";

pub(super) const ROW: Row = Row {
    id: "SE8",
    what: "nobody locks, reads or connects; a viewer writes nothing; each change is recorded",
    on: "a daemon with a roles file, and programs under other users",
    goals: &[
        Goal::new("SE8-refused", &[Bound::AtLeast(2.0, "tests passed")]),
        Goal::new("SE8-recorded", &[Bound::AtLeast(1.0, "test passed")]),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let test = |lab: &Lab, words: &str| {
        let command = lab.in_checkout("cargo").args("test -p taut-tests --test host --");
        command.args("--test-threads=1").args(words).env("TAUT_AUDIT_CHANGES", CHANGES)
    };
    let refused = "access::nobody_can_lock_read_or_connect access::every_write_of_a_viewer_is_refused";
    let command = test(lab, refused).record("refused");
    let tests = lab.tests(&command)?;
    results.record("SE8-refused", [tests.passed], "every route that writes, by the table of the router");
    let command = test(lab, "access::every_change_is_recorded_with_its_caller").record("recorded");
    let tests = lab.tests(&command)?;
    let detail = format!("{CHANGES} changes by four clients at once, all recorded with their caller");
    results.record("SE8-recorded", [tests.passed], detail);
    Ok(())
}
