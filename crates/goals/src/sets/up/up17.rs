//! UP17: settings of network cards are made, kept and undone.

use crate::figure::Bound;
use crate::lab::Lab;
use crate::reason::Measured;
use crate::row::{Goal, Results, Row};

pub(super) const ROW: Row = Row {
    id: "UP17",
    what: "settings of cards: made, kept by the next daemon, refused with a reason, undone to the byte; `check --apply`",
    on: "the host tests on TAP devices (speed, duplex, moderation, offloads) and veth pairs (channels, offloads), and an \
         emulated e1000e in a nested guest (rings, moderation, offered speeds, offloads)",
    goals: &[
        Goal::new("UP17-virtual", &[Bound::AtLeast(5.0, "tests passed")]),
        Goal::new("UP17-e1000e", &[Bound::Exactly(1.0, "tests passed")]),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let tests = lab.cargo_test("-p taut-tests --test host -- --test-threads=1 pnic::")?;
    results.record("UP17-virtual", [tests.passed], "none failed or skipped");
    let tests = lab.cargo_test("-p taut-tests --test guest -- nested::settings_of_an_emulated_card")?;
    results.record("UP17-e1000e", [tests.passed], "none failed or skipped");
    Ok(())
}
