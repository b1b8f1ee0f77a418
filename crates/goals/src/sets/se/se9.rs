//! SE9: system calls of the fabric.

use crate::figure::Bound;
use crate::lab::{Lab, Tests};
use crate::reason::Measured;
use crate::row::{Goal, Results, Row};

pub(super) const ROW: Row = Row {
    id: "SE9",
    what: "every system call that the fabric does not need ends it",
    on: "numbers 0 to 547 with and without the x32 bit, each in a process of its own",
    goals: &[
        Goal::new(
            "SE9-killed",
            &[
                Bound::AtLeast(1000.0, "numbers tried"),
                Bound::Stated("killed"),
                Bound::Exactly(0.0, "tests failed"),
            ],
        ),
        Goal::new(
            "SE9-list",
            &[
                Bound::AtMost(45.0, "calls"),
                Bound::AtLeast(60.0, "% of the calls check arguments"),
                Bound::AtLeast(60.0, "% of the rules check arguments"),
                Bound::Exactly(0.0, "tests failed"),
            ],
        ),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let words = "test -p taut-fabric --lib sandbox::tests -- --nocapture --test-threads=1";
    let command = lab.in_checkout("cargo").args(words).record("cargo-test");
    let Tests { passed, failed, text, .. } = lab.tests_that_may_fail(&command)?;
    let tried = text.number_between("outside the list: ", " numbers tried")?;
    let killed = text.number_between(" numbers tried, ", " killed")?;
    let detail = format!(
        "the other {} answer `ENOSYS`, which C libraries expect; not tried: `uretprobe`, `uprobe`",
        tried - killed
    );
    results.record("SE9-killed", [tried, killed, failed], detail);
    let checking = text.number_between("the list: ", " of ")?;
    let calls = text.number_between(&format!("the list: {checking} of "), " calls")?;
    let checked = text.number_between(" calls and ", " of ")?;
    let rules = text.number_between(&format!(" calls and {checked} of "), " rules")?;
    let detail = format!("{checking} of {calls} calls, {checked} of {rules} rules; {passed} tests");
    let values = [calls, 100.0 * checking / calls, 100.0 * checked / rules, failed];
    results.record("SE9-list", values, detail);
    Ok(())
}
