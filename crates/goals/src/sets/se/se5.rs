//! SE5: forbidden acts of a program in a VM's place.

use crate::figure::Bound;
use crate::lab::Lab;
use crate::reason::{Measured, require};
use crate::row::{Goal, Results, Row};

pub(super) const ROW: Row = Row {
    id: "SE5",
    what: "a program that the launcher starts in a VM's place tries what a VM must not do",
    on: "the launcher, with and without a skeleton of mounts; each act is named, none may succeed",
    goals: &[Goal::new(
        "SE5",
        &[
            Bound::AtLeast(40.0, "acts"),
            Bound::Exactly(0.0, "not refused"),
            Bound::Exactly(0.0, "acts without a name of their own"),
            Bound::Exactly(0.0, "tests failed"),
        ],
    )],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let build = lab.in_checkout("cargo").args("build -q -p taut-launch --example forbidden_acts");
    lab.run(&build)?;
    let words =
        "test -p taut-launch --test launch acts::no_forbidden_act_succeeds -- --nocapture --test-threads=1";
    let command = lab.in_checkout("cargo").args(words).record("cargo-test");
    let tests = lab.tests_that_may_fail(&command)?;
    let text = tests.text;
    // One line each with and without a skeleton.
    let acts = text.numbers_between("acts: ", " tried, ")?;
    let names = text.numbers_between(" tried, ", " names, ")?;
    let succeeded = text.numbers_between(" names, ", " not refused")?;
    require([&acts, &names, &succeeded].iter().all(|list| list.len() >= 2), "a test printed no figures")?;
    let unnamed = acts.iter().sum::<f64>() - names.iter().sum::<f64>();
    let detail = format!("{} with a skeleton; files, signals, processes, sockets, mounts, devices", acts[1]);
    results.record("SE5", [acts[0], succeeded.iter().sum(), unnamed, tests.failed], detail);
    Ok(())
}
