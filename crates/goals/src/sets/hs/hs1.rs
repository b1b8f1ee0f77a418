//! HS1: arrows between the folders of all crates, as the architecture test counts them.

use crate::figure::Bound;
use crate::lab::Lab;
use crate::reason::Measured;
use crate::row::{Goal, Results, Row};

pub(super) const ROW: Row = Row {
    id: "HS1",
    what: "arrows between the folders of all crates",
    on: "the code",
    goals: &[Goal::new("HS1", &[Bound::Exactly(0.0, "upward"), Bound::Exactly(0.0, "circles")])],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let words = "-p taut-tests --test architecture -- --test-threads=1 --nocapture folders_import";
    let text = lab.cargo_test(words)?.text;
    let upward = text.number_between(" rows, ", " upward")?;
    let circles = text.number_between(" upward, ", " circles")?;
    results.record("HS1", [upward, circles], text.between("folders: ", ",")?);
    Ok(())
}
