//! HS5: columns of comments and Markdown.

use crate::figure::Bound;
use crate::lab::Lab;
use crate::reason::Measured;
use crate::row::{Goal, Results, Row};

pub(super) const ROW: Row = Row {
    id: "HS5",
    what: "comments and Markdown keep to 100 columns",
    on: "the code and the documents",
    goals: &[Goal::new("HS5", &[Bound::AtLeast(1.0, "test passed")])],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let tests = lab.cargo_test("-p taut-tests --test architecture comments_and_markdown")?;
    results.record("HS5", [tests.passed], "the test lists lines that are wider");
    Ok(())
}
