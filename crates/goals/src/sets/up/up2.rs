//! UP2: frames a second that pass an uplink in each direction, with either backend, beside a Linux
//! bridge and beside OVS, which drives its card by XDP sockets as well.
//!
//! OVS has two polling ends: its port for the sender's vhost-user socket, which is the same as of
//! taut's port, and the card. Flows lead from one to the other, so OVS neither learns nor floods.

use std::path::Path;

use crate::figure::{Bound, shown};
use crate::lab::Lab;
use crate::lab::rig::{Flows, Rig, Switch};
use crate::machine::{Command, Doc};
use crate::reason::Measured;
use crate::rival::Rival;
use crate::rounds::{Plan, Rounds, Sample};
use crate::row::{Goal, Results, Row};

const BRIDGE: &[Rival] = &[Rival::LinuxBridge];
const OVS: &[Rival] = &[Rival::OvsDpdk];
const BOUNDS: &[Bound] = &[
    Bound::AtLeast(1.5, "x packet socket, by XDP"),
    Bound::AtLeast(1.0, "x bridge, by XDP"),
    Bound::AtLeast(1.0, "x bridge, by packet socket"),
];
const OVS_BOUNDS: &[Bound] =
    &[Bound::Stated("x OVS by XDP, by XDP"), Bound::Stated("x OVS by XDP, by packet socket")];

/// Frames of one comparison, and its goals.
struct Load {
    direction: &'static str,
    size: u32,
    goal: &'static str,
    beside_ovs: &'static str,
}

const LOADS: [Load; 4] = [
    Load { direction: "out", size: 64, goal: "UP2-64", beside_ovs: "UP2-ovs-64" },
    Load { direction: "out", size: 1518, goal: "UP2-1518", beside_ovs: "UP2-ovs-1518" },
    Load { direction: "in", size: 64, goal: "UP2-in-64", beside_ovs: "UP2-ovs-in-64" },
    Load { direction: "in", size: 1518, goal: "UP2-in-1518", beside_ovs: "UP2-ovs-in-1518" },
];
/// Card of OVS, and the end of its cable.
const CARD: &str = "taut-goal-xdp";
const END: &str = "taut-goal-xde";
const OVS_FIXED: Switch = Switch::Ovs(Flows::Fixed);

pub(super) const ROW: Row = Row {
    id: "UP2",
    what: "frames of 64 and 1518 B out by an uplink and in: packet socket and XDP socket (copies) beside a Linux \
           bridge and OVS with an XDP socket",
    on: "veth cards; the switch on CPU 0, both ends of the load on CPU 1; what sends out by the bridge, and what \
         receives from it, on CPU 0",
    goals: &[
        Goal::beside(LOADS[0].goal, BOUNDS, BRIDGE),
        Goal::beside(LOADS[1].goal, BOUNDS, BRIDGE),
        Goal::beside(LOADS[2].goal, BOUNDS, BRIDGE),
        Goal::beside(LOADS[3].goal, BOUNDS, BRIDGE),
        Goal::beside(LOADS[0].beside_ovs, OVS_BOUNDS, OVS),
        Goal::beside(LOADS[1].beside_ovs, OVS_BOUNDS, OVS),
        Goal::beside(LOADS[2].beside_ovs, OVS_BOUNDS, OVS),
        Goal::beside(LOADS[3].beside_ovs, OVS_BOUNDS, OVS),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let program = lab.example("taut-tests", "uplinks")?;
    lab.with_rig(|lab, rig| {
        let ovs = start_ovs(lab, rig, &program);
        rig.pause(lab, &OVS_FIXED);
        let mode = ovs.as_ref().ok().cloned();
        results.settle(&LOADS.map(|load| load.beside_ovs), ovs.map(drop));
        LOADS.iter().try_for_each(|load| compare(lab, rig, results, &program, load, mode.as_deref()))
    })
}

/// Starts OVS with a port for the load and a card. Returns the mode of the card's XDP socket.
fn start_ovs(lab: &mut Lab, rig: &mut Rig, program: &Path) -> Measured<String> {
    let ip = |words: String| Command::new("ip").args(words);
    lab.owe(ip(format!("link del {CARD}")))?;
    lab.run(&ip(format!("link add {CARD} type veth peer name {END}")))?;
    for end in [CARD, END] {
        lab.run(&ip(format!("link set {end} up")))?;
    }
    let mode = rig.add_ovs_xdp(lab, CARD)?;
    // For its first front end, OVS takes memory for seconds and forwards nothing meanwhile.
    lab.until("OVS forwards", 60, |lab| {
        let doc = by_ovs(lab, rig, program, "out 64 1")?;
        Ok(doc.number("mpps")? > 0.01)
    })?;
    Ok(mode)
}

/// Loads OVS, and stops it again: its thread polls CPU 0 as long as it runs.
fn by_ovs(lab: &mut Lab, rig: &mut Rig, program: &Path, frames: &str) -> Measured<Doc> {
    rig.resume(lab, &OVS_FIXED)?;
    let [socket, _] = rig.sockets(&OVS_FIXED)?;
    let command = lab.in_checkout(program).arg("rates-of").arg(socket).args(format!("{END} {frames}"));
    let ended = lab.run(&command.preferred().record("rates-of"));
    rig.pause(lab, &OVS_FIXED);
    ended?.stdout.json()
}

/// Compares all ways for a load. `ovs` is the mode of OVS's XDP socket, if it has one.
fn compare(
    lab: &mut Lab,
    rig: &mut Rig,
    results: &mut Results,
    program: &Path,
    load: &Load,
    ovs: Option<&str>,
) -> Measured<()> {
    let Load { direction, size, .. } = load;
    let (rounds, seconds) = lab.pick((8, 3), (2, 1));
    let mut ways = vec!["packet", "xdp", "bridge"];
    ways.extend(ovs.map(|_| "ovs"));
    let rounds = Rounds::take(Plan::exactly(rounds), &ways, None, |way| {
        let frames = format!("{direction} {size} {seconds}");
        let doc: Doc = if way == "ovs" {
            by_ovs(lab, rig, program, &frames)?
        } else {
            let command = lab.in_checkout(program).args(format!("rates {way} {frames}"));
            lab.run(&command.preferred().record("rates"))?.stdout.json()?
        };
        Ok(Sample::new(doc))
    })?;
    let ratio = |over, under| rounds.ratio(over, under, "mpps");
    let mpps = |way: &str| -> Measured<String> {
        Ok(format!("{way} {} Mpps", shown(rounds.median(way, "mpps")?.value)))
    };
    let ratios = [ratio("xdp", "packet")?, ratio("xdp", "bridge")?, ratio("packet", "bridge")?];
    let detail = [mpps("packet")?, mpps("xdp")?, mpps("bridge")?].join(", ");
    results.record(load.goal, ratios, detail);
    if let Some(mode) = ovs {
        let ratios = [ratio("xdp", "ovs")?, ratio("packet", "ovs")?];
        let detail = format!("{}, in mode {mode}, {}, {}", mpps("ovs")?, mpps("xdp")?, mpps("packet")?);
        results.record(load.beside_ovs, ratios, detail);
    }
    Ok(())
}
