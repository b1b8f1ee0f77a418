//! UP12: isolation with an uplink.

use crate::figure::Bound;
use crate::lab::Lab;
use crate::reason::Measured;
use crate::row::{Goal, Results, Row};

pub(super) const ROW: Row = Row {
    id: "UP12",
    what: "frames from outside with double tags, forged sources, foreign VLANs or unknown addresses, and the host's own stack",
    on: "the host tests that cover them",
    goals: &[Goal::new("UP12", &[Bound::AtLeast(4.0, "tests passed")])],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let tests = lab.cargo_test(
        "-p taut-tests --test host -- --test-threads=1 uplink::frames_from_outside uplink::the_host_itself \
         uplink::ports_reach teams::a_switch_that_floods",
    )?;
    results.record("UP12", [tests.passed], "none failed or skipped");
    Ok(())
}
