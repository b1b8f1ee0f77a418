//! UP1: TCP between a QEMU guest and a machine outside, by an uplink.
//!
//! The machine outside is a guest on a Linux bridge. The measured guest reaches the bridge by an
//! uplink on veth; its rival is a guest with the same command line whose TAP device is in the
//! bridge.

use crate::figure::{Bound, shown};
use crate::lab::{BRIDGE, DaemonOptions, Lab, NEWEST, OLDEST, Twin};
use crate::machine::Command;
use crate::reason::{Measured, NotMeasured};
use crate::rival::Rival;
use crate::rounds::versus;
use crate::row::{Goal, Results, Row};

const RIVALS: &[Rival] = &[Rival::LinuxBridge];
/// The card of the uplink, and the end of its cable in the bridge.
const CARD: [&str; 2] = ["taut-goal-up", "taut-goal-out"];

pub(super) const ROW: Row = Row {
    id: "UP1",
    what: "TCP, request and response between a guest and one outside, beside TAP + bridge",
    on: "QEMU guests, all with the same priority; the uplink is a veth card whose other end is in the bridge",
    goals: &[
        Goal::beside("UP1-stream", &[Bound::AtLeast(1.0, "x TAP + bridge")], RIVALS),
        Goal::beside("UP1-rr", &[Bound::AtMost(1.0, "x TAP + bridge's p50")], RIVALS),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    lab.start_lan(DaemonOptions::default().args("--fabric-cpus 0").preferred())?;
    lab.vm("near", OLDEST, "10.80.0.1", "")?;
    lab.vm("far", NEWEST, "10.80.0.2", "")?;
    let twins = lab.bridge_twins(&["near", "far"])?;
    for twin in &twins {
        lab.prefer(twin.pid);
    }
    lab.until_twins_answer(&twins)?;
    // The twins have their addresses now.
    for name in ["near", "far"] {
        lab.taut(format!("vm stop {name}"))?;
    }
    lab.vm("gamma", OLDEST, "10.80.0.3", "")?;
    let pid = lab.vm_pid("gamma")?;
    lab.prefer(pid);
    let [card, end] = CARD;
    let ip = |words: String| Command::new("ip").args(words);
    lab.owe(ip(format!("link del {card}")))?;
    lab.run(&ip(format!("link add {card} type veth peer name {end}")))?;
    lab.run(&ip(format!("link set {end} master {BRIDGE} up")))?;
    lab.taut(format!("uplink add sw {card}"))?;
    let [near, far] = &twins[..] else { return Err(NotMeasured::because("it takes two twins")) };
    let [near, far] = [near, far].map(Twin::end_point);
    let (each, repeats) = lab.pick((4, 7), (2, 2));
    let options = format!("gamma {far} --versus {near} {far} --duration {each} --repeat {repeats}");
    for (goal, bench, (figure, unit)) in [
        ("UP1-stream", "stream --pattern auto", ("mbit_s", "Mbit/s")),
        ("UP1-rr", "rr", ("p50_us", "µs p50")),
    ] {
        let (kind, more) = bench.split_once(' ').unwrap_or((bench, ""));
        let report = lab.bench(format!("{kind} {options} {more}"))?;
        let mut detail = Vec::new();
        for (name, side) in [("uplink", "a"), ("TAP + bridge", "b")] {
            let median = report.number(&format!("{side}.median.{figure}"))?;
            detail.push(format!("{name} {} {unit}", shown(median.round())));
        }
        results.record(goal, [versus(&report, figure)?], detail.join(", "));
    }
    Ok(())
}
