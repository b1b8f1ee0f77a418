//! UP10: an interface moves from a bridge to a port group and back under a TCP connection.

use crate::figure::{Bound, shown};
use crate::lab::Lab;
use crate::reason::{Measured, require};
use crate::row::{Goal, Results, Row};

pub(super) const ROW: Row = Row {
    id: "UP10",
    what: "an interface moves from a bridge to a port group and back while a TCP connection passes it",
    on: "a veth pair in place of a VM's TAP device; the vSwitch reaches the same bridge by an uplink",
    goals: &[Goal::new(
        "UP10",
        &[
            Bound::AtMost(500.0, "ms without a byte"),
            Bound::Exactly(1.0, "connections alive"),
            Bound::Exactly(0.0, "times that the interface is not as before"),
        ],
    )],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let times = lab.pick(20_u64, 3);
    let program = lab.example("taut-tests", "uplinks")?;
    let command = lab.in_checkout(program).args(format!("netdev {times}")).record("netdev");
    let found = lab.run(&command)?.stdout.json()?;
    require(found.count("times")? == times || lab.machine().is_stand_in(), "the program lost count")?;
    let values = [found.number("longest_ms")?, found.number("survived")?, found.number("bridge_changed")?];
    let detail = format!("{times} times there and back; {} bytes", shown(found.number("bytes")?));
    results.record("UP10", values, detail);
    Ok(())
}
