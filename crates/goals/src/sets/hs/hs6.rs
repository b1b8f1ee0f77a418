//! HS6: sizes and duplicates, before and after.

use std::path::Path;

use crate::figure::{Bound, shown};
use crate::lab::Lab;
use crate::machine::{Command, Text};
use crate::reason::Measured;
use crate::row::{Goal, Results, Row};

use super::before;

pub(super) const ROW: Row = Row {
    id: "HS6",
    what: "sizes of files, and duplicates, before and after",
    on: "the code",
    goals: &[Goal::new("HS6", &[Bound::Stated("files over 600 lines"), Bound::Stated("duplicate lines")])],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let old = before::tree(lab)?;
    let program = lab.example("taut-tests", "sizes")?;
    let (long, equal) = sizes(lab, &program, &old, "before")?;
    let new = lab.setup().checkout.clone();
    let (long_now, equal_now) = sizes(lab, &program, &new, "after")?;
    let detail = format!("before: {} and {}", shown(long), shown(equal));
    results.record("HS6", [long_now, equal_now], detail);
    Ok(())
}

fn sizes(lab: &mut Lab, program: &Path, tree: &Path, name: &str) -> Measured<(f64, f64)> {
    let text: Text = lab.run(&Command::new(program).arg(tree.join("crates")).record(name))?.stdout;
    for line in text.lines() {
        lab.note(format!("{name}: {line}"));
    }
    // The longest file comes before the number of long ones: `longest 580, 0 over 600`.
    let long = text.between("longest ", " over 600")?;
    let long = Text::from(long.rsplit(", ").next().unwrap_or_default());
    Ok((long.number()?, text.number_between("duplicates: ", " lines")?))
}
