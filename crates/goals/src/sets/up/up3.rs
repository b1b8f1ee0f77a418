//! UP3: the carrier of an active uplink is lost, and comes back.

use crate::figure::{Bound, shown};
use crate::lab::Lab;
use crate::reason::{Measured, require};
use crate::row::{Goal, Results, Row};

pub(super) const ROW: Row = Row {
    id: "UP3",
    what: "the carrier of an active uplink is lost and comes back while a port sends a frame each millisecond",
    on: "two TAP devices as cards, which the kernel tells of late, and veth with a TCP connection beside; 30 of \
         100 times without tautd",
    goals: &[
        Goal::new("UP3-gap", &[Bound::AtMost(50.0, "ms p99"), Bound::AtMost(200.0, "ms at most")]),
        Goal::new("UP3-back", &[Bound::Exactly(0.0, "frames lost on the way back")]),
        Goal::new(
            "UP3-veth",
            &[
                Bound::AtMost(50.0, "ms p99"),
                Bound::AtMost(200.0, "ms at most"),
                Bound::Exactly(0.0, "datagrams lost on the way back"),
            ],
        ),
        Goal::new("UP3-tcp", &[Bound::AtMost(500.0, "ms without a byte")]),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let (losses, dead) = lab.pick((100_u64, 30_u64), (10, 3));
    let program = lab.example("taut-tests", "uplinks")?;
    let command = lab
        .in_checkout(program.clone())
        .args(format!("failover {losses} {dead}"))
        .preferred()
        .record("failover");
    let found = lab.run(&command)?.stdout.json()?;
    require(found.count("losses")? == losses || lab.machine().is_stand_in(), "the program lost count")?;
    let [p50, p99, longest] = ["p50_ms", "p99_ms", "longest_ms"].map(|name| found.number(name));
    let detail = format!("{losses} losses, {dead} without tautd; p50 {} ms", shown(p50?));
    results.record("UP3-gap", [p99?, longest?], detail);
    results.record(
        "UP3-back",
        [found.number("lost_back")?],
        format!("{} frames", shown(found.number("frames")?)),
    );
    let command = lab.in_checkout(program).args(format!("veth {losses} {dead}")).preferred().record("veth");
    let found = lab.run(&command)?.stdout.json()?;
    require(found.count("losses")? == losses || lab.machine().is_stand_in(), "the program lost count")?;
    let number = |name: &str| found.number(name);
    let detail = format!("{losses} losses, {dead} without tautd; p50 {} ms", shown(number("p50_ms")?));
    let values = [number("p99_ms")?, number("longest_ms")?, number("lost_back")?];
    results.record("UP3-veth", values, detail);
    results.record("UP3-tcp", [number("tcp_longest_ms")?], "a message each ms".to_owned());
    Ok(())
}
