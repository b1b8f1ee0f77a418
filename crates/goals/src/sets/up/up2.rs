//! UP2: frames a second that leave by an uplink, with either backend, beside a Linux bridge.
//!
//! OVS with ports of type `afxdp` is not among the rivals yet: nothing here sends through it to a
//! veth card.

use crate::figure::{Bound, shown};
use crate::lab::Lab;
use crate::machine::Doc;
use crate::reason::Measured;
use crate::rival::Rival;
use crate::rounds::{Plan, Rounds, Sample};
use crate::row::{Goal, Results, Row};

const RIVALS: &[Rival] = &[Rival::LinuxBridge];
const BOUNDS: &[Bound] = &[
    Bound::AtLeast(1.5, "x packet socket, by XDP"),
    Bound::AtLeast(1.0, "x bridge, by XDP"),
    Bound::AtLeast(1.0, "x bridge, by packet socket"),
];
const LOADS: [(&str, u32); 2] = [("UP2-64", 64), ("UP2-1518", 1518)];

pub(super) const ROW: Row = Row {
    id: "UP2",
    what: "frames of 64 and 1518 B by an uplink: packet socket and XDP socket (copies) beside a Linux bridge",
    on: "a veth card; the switch on CPU 0, its sender on CPU 1; what sends to the bridge on CPU 0",
    goals: &[Goal::beside(LOADS[0].0, BOUNDS, RIVALS), Goal::beside(LOADS[1].0, BOUNDS, RIVALS)],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let program = lab.example("taut-tests", "uplinks")?;
    let (rounds, seconds) = lab.pick((8, 3), (2, 1));
    for (goal, size) in LOADS {
        let rounds = Rounds::take(Plan::exactly(rounds), &["packet", "xdp", "bridge"], None, |way| {
            let words = format!("rates {way} {size} {seconds}");
            let command = lab.in_checkout(program.clone()).args(words).record("rates");
            let doc: Doc = lab.run(&command)?.stdout.json()?;
            Ok(Sample::new(doc))
        })?;
        let ratio = |over, under| rounds.ratio(over, under, "mpps");
        let ratios = [ratio("xdp", "packet")?, ratio("xdp", "bridge")?, ratio("packet", "bridge")?];
        let mut detail = Vec::new();
        for way in ["packet", "xdp", "bridge"] {
            detail.push(format!("{way} {} Mpps", shown(rounds.median(way, "mpps")?.value)));
        }
        results.record(goal, ratios, detail.join(", "));
    }
    Ok(())
}
