//! UP19: uplinks on a host with Debian 12's kernel.

use crate::figure::Bound;
use crate::lab::Lab;
use crate::reason::Measured;
use crate::row::{Goal, Results, Row};

pub(super) const ROW: Row = Row {
    id: "UP19",
    what: "uplinks, teams, cards and interfaces on port groups work on Debian 12's Linux 6.1, with what that kernel has; \
           what it lacks is named",
    on: "a nested host, emulated, too slow for rates: the tests of uplinks, teams, interfaces on port groups and \
         settings of cards run in it, and two namespaces reach a switch in their VLAN by a team of two cables",
    goals: &[Goal::new("UP19", &[Bound::Exactly(1.0, "tests passed")])],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let tests = lab.cargo_test("-p taut-tests --test guest -- nested::uplinks_on_debian_12s_kernel")?;
    results.record("UP19", [tests.passed], "none failed or skipped");
    Ok(())
}
