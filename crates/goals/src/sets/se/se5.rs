//! SE5: forbidden acts of a program in a VM's place.

use crate::figure::Bound;
use crate::lab::Lab;
use crate::reason::Measured;
use crate::row::{Goal, Results, Row};

pub(super) const ROW: Row = Row {
    id: "SE5",
    what: "a program that the launcher starts in a VM's place tries what a VM must not do",
    on: "the launcher, with and without a skeleton of mounts; each act is named, none may succeed",
    goals: &[Goal::new("SE5", &[Bound::AtLeast(2.0, "tests passed")])],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let build = lab.in_checkout("cargo").args("build -q -p taut-launch --example forbidden_acts");
    lab.run(&build)?;
    let tests = lab.cargo_test("-p taut-launch --test launch acts::no_forbidden_act_succeeds")?;
    results.record("SE5", [tests.passed], "files, signals, processes, sockets, mounts, devices, descriptors");
    Ok(())
}
