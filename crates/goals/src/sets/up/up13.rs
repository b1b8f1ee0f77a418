//! UP13: bad input about uplinks.

use crate::figure::Bound;
use crate::lab::Lab;
use crate::reason::Measured;
use crate::row::{Goal, Results, Row};

pub(super) const ROW: Row = Row {
    id: "UP13",
    what: "interfaces that are in use, gone, renamed or down, second owners, teamings that name others' uplinks, \
           wrong speeds, reservations that are too large, and MTUs that an interface cannot have",
    on: "the host and unit tests that cover them",
    goals: &[Goal::new(
        "UP13",
        &[Bound::AtLeast(7.0, "host tests passed"), Bound::AtLeast(9.0, "unit tests passed")],
    )],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let host = lab.cargo_test(
        "-p taut-tests --test host -- --test-threads=1 uplink::a_card_in_use uplink::a_card_with uplink::an_uplink_survives \
         teams::each_policy pnic::what_a_card network_io::a_reservation mtu::an_interface",
    )?;
    let unit =
        lab.cargo_test("-p taut-plan --lib -- admission::uplinks admission::network_io admission::mtu")?;
    results.record("UP13", [host.passed, unit.passed], "none failed or skipped");
    Ok(())
}
