//! UP18: the edge of a port as on ESX: MAC addresses, MTUs, and multicast groups.

use crate::figure::Bound;
use crate::lab::Lab;
use crate::reason::Measured;
use crate::row::{Goal, Results, Row};

pub(super) const ROW: Row = Row {
    id: "UP18",
    what: "MTUs of 1500 and 9000 on one vSwitch and behind its uplink: streams and datagrams pass, and what is too long \
           is dropped with a count; a guest changes its MAC address: it is reached there if that is accepted, and cut off \
           if it is rejected; with snooping kernels and raw ports join and leave groups, a router is in a guest, the \
           fabric is new, and an uplink fails",
    on: "the host tests on namespaces, veth pairs, TAP devices and vhost-user front ends, the fabric's tests with real \
         rings, and a Linux guest with a virtio card",
    goals: &[
        Goal::new(
            "UP18-mtu",
            &[Bound::AtLeast(4.0, "host tests passed"), Bound::AtLeast(2.0, "fabric tests passed")],
        ),
        Goal::new("UP18-mac", &[Bound::Exactly(1.0, "tests passed")]),
        Goal::new("UP18-snoop", &[Bound::AtLeast(4.0, "tests passed")]),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let host = lab.cargo_test(
        "-p taut-tests --test host -- --test-threads=1 mtu::namespaces mtu::a_card mtu::tcp_passes mtu::guests",
    )?;
    let fabric = lab.cargo_test("-p taut-fabric --test fabric -- mtu::")?;
    results.record("UP18-mtu", [host.passed, fabric.passed], "none failed or skipped");
    let tests = lab.cargo_test("-p taut-tests --test guest -- addresses::")?;
    results.record("UP18-mac", [tests.passed], "none failed or skipped");
    let tests = lab.cargo_test("-p taut-tests --test host -- --test-threads=1 multicast::")?;
    results.record("UP18-snoop", [tests.passed], "none failed or skipped");
    Ok(())
}
