//! PG1: shaping changed on the page by the keyboard.

use crate::figure::{Bound, shown};
use crate::lab::Lab;
use crate::reason::{Measured, require};
use crate::row::{Goal, Results, Row};

pub(super) const ROW: Row = Row {
    id: "PG1",
    what: "Chromium: a card that receives a stream is limited on its page, by the keyboard alone; time from the key \
           until its rate has followed",
    on: "two microguests; pictures of the page, light and dark, are saved with the row's output",
    goals: &[Goal::new(
        "PG1-follows",
        &[
            Bound::AtMost(5.0, "s"),
            Bound::Within(18.0, 22.0, "Mbit/s afterwards"),
            Bound::Stated("Mbit/s before"),
        ],
    )],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let program = lab.example("taut-tests", "browser")?;
    let pictures = lab.fresh("pictures")?;
    let command = lab.in_checkout(program).args(format!("shaping {}", pictures.display())).record("shaping");
    let found = lab.run(&command)?.stdout.json()?;
    let limit = found.number("limit_mbit_per_s")?;
    let before = found.number("before_mbit_per_s")?;
    require(
        before > 2.0 * limit || lab.machine().is_stand_in(),
        "the stream was slower than the limit before",
    )?;
    let detail = format!("limit {} Mbit/s, a burst of 64 KiB; {} tabs", shown(limit), found.count("tabs")?);
    let figures = [found.number("seconds")?, found.number("after_mbit_per_s")?, before];
    results.record("PG1-follows", figures, detail);
    Ok(())
}
