//! HS4: commands of README.md and the guide that tests execute; README's length.

use crate::figure::Bound;
use crate::lab::Lab;
use crate::machine::Command;
use crate::reason::Measured;
use crate::row::{Goal, Results, Row};

pub(super) const ROW: Row = Row {
    id: "HS4",
    what: "commands of README.md and the guide that tests execute; README's length",
    on: "the documents",
    goals: &[
        Goal::new(
            "HS4-commands",
            &[Bound::AtLeast(1.0, "commands executed"), Bound::AtLeast(1.0, "with a guest")],
        ),
        Goal::new("HS4-readme", &[Bound::AtMost(90.0, "lines")]),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let readme = lab.setup().checkout.join("README.md");
    let lines = lab.run(&Command::new("wc").arg("-l").arg(readme).record("wc"))?.stdout;
    results.record("HS4-readme", [lines.number_between("", " ")?], "");
    let options = "-- --test-threads=1 --nocapture guide";
    let host = lab.cargo_test(format!("-p taut-tests --test host {options}"))?.text;
    let here: f64 = host.numbers_between(": ", " commands executed here")?.iter().sum();
    let elsewhere: f64 = host.numbers_between(" here, ", " elsewhere")?.iter().sum();
    let guest = lab.cargo_test(format!("-p taut-tests --test guest {options}"))?.text;
    let with_guest = guest.number_between("the guide: ", " commands executed")?;
    let detail = format!("{elsewhere} more by the tests that the documents name");
    results.record("HS4-commands", [here, with_guest], detail);
    Ok(())
}
