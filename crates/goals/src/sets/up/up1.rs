//! UP1: TCP between a QEMU guest and a machine outside, by an uplink.
//!
//! The machine outside is a guest on a Linux bridge. The measured guest reaches the bridge by an
//! uplink on veth. One rival is a guest with the same command line whose TAP device is in the
//! bridge. The other is such a guest on OVS in user space, which reaches the bridge by veth as well
//! and segments TCP as late as it can. Microguests reach the bridge by the same uplink, and by a
//! TAP port of taut.

use crate::figure::{Bound, shown};
use crate::lab::rig::{Rig, Switch};
use crate::lab::{BRIDGE, DaemonOptions, Lab, NEWEST, OLDEST, Twin};
use crate::machine::Command;
use crate::reason::{Measured, NotMeasured};
use crate::rival::Rival;
use crate::rounds::{Plan, Rounds, Sample, versus};
use crate::row::{Goal, Results, Row};

const TAP: &[Rival] = &[Rival::LinuxBridge];
const OVS: &[Rival] = &[Rival::LinuxBridge, Rival::OvsDpdk];
/// The card of the uplink, and the end of its cable in the bridge.
const CARD: [&str; 2] = ["taut-goal-up", "taut-goal-out"];
/// The same for OVS.
const OVS_CARD: [&str; 2] = ["taut-goal-ov", "taut-goal-oo"];
/// The machine outside for microguests, and the namespace of the TAP port.
const OUTSIDE: &str = "taut-goal-outside";
const BEHIND_TAP: &str = "taut-goal-tap";
/// Each bench with the figure that counts and its unit.
const BENCHES: [(&str, &str, &str, &str); 2] =
    [("stream", "stream --pattern auto", "mbit_s", "Mbit/s"), ("rr", "rr", "p50_us", "µs p50")];

pub(super) const ROW: Row = Row {
    id: "UP1",
    what: "TCP, request and response between a guest and one outside, beside TAP + bridge and beside OVS",
    on: "QEMU guests, all with the same priority, and microguests; the uplink is a veth card whose other end is in the \
         bridge; the fabric has its usual mode and priority, below that of the QEMU guests",
    goals: &[
        Goal::beside("UP1-stream", &[Bound::AtLeast(1.0, "x TAP + bridge")], TAP),
        Goal::beside("UP1-rr", &[Bound::AtMost(1.0, "x TAP + bridge's p50")], TAP),
        Goal::beside("UP1-ovs-stream", &[Bound::AtLeast(2.0, "x OVS")], OVS),
        Goal::beside("UP1-ovs-rr", &[Bound::AtMost(1.0, "x OVS's p50")], OVS),
        Goal::new("UP1-micro-stream", &[Bound::AtLeast(1.1, "x taut's TAP port in the bridge")]),
        Goal::new("UP1-micro-rr", &[Bound::AtMost(1.0, "x its p50")]),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    lab.start_lan(DaemonOptions::default().args("--fabric-cpus 0"))?;
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
    let [card, _] = cable(lab, CARD)?;
    lab.taut(format!("uplink add sw {card}"))?;
    let [near, far] = &twins[..] else { return Err(NotMeasured::because("it takes two twins")) };
    let [near, far] = [near, far].map(Twin::end_point);
    let outcome = beside_tap(lab, results, &near, &far);
    results.settle(&["UP1-stream", "UP1-rr"], outcome);
    lab.vm("delta", OLDEST, "10.80.0.4", "")?;
    let outcome = lab.with_rig(|lab, rig| beside_ovs(lab, rig, results, &far));
    results.settle(&["UP1-ovs-stream", "UP1-ovs-rr"], outcome);
    lab.end_jobs();
    lab.taut("vm stop gamma")?;
    beside_tap_port(lab, results)
}

/// Makes a veth pair whose second end is in the bridge.
fn cable(lab: &mut Lab, ends: [&'static str; 2]) -> Measured<[&'static str; 2]> {
    let [card, end] = ends;
    let ip = |words: String| Command::new("ip").args(words);
    lab.owe(ip(format!("link del {card}")))?;
    lab.run(&ip(format!("link add {card} type veth peer name {end}")))?;
    lab.run(&ip(format!("link set {end} master {BRIDGE} up")))?;
    Ok(ends)
}

fn beside_tap(lab: &mut Lab, results: &mut Results, near: &str, far: &str) -> Measured<()> {
    compare(lab, results, "UP1-", &format!("gamma {far} --versus {near} {far}"), "TAP + bridge")
}

/// Measures a microguest behind the uplink and one behind a TAP port of taut. The TAP device is in
/// a bridge of its namespace, from which a cable leads into the bridge outside. The machine outside
/// is a namespace.
fn beside_tap_port(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let ip = |words: String| Command::new("ip").args(words);
    lab.owe(ip(format!("netns del {OUTSIDE}")))?;
    lab.owe(ip(format!("netns del {BEHIND_TAP}")))?;
    lab.taut("vswitch create sw-tap")?;
    let policies = "--forged-transmits on --mac-changes on --mac-learning on";
    lab.taut(format!("portgroup create by-tap --vswitch sw-tap {policies}"))?;
    lab.taut("portgroup create behind --vswitch sw-tap")?;
    lab.taut(format!("netns attach {BEHIND_TAP} --portgroup by-tap --ifname tap0"))?;
    for words in [
        format!("netns add {OUTSIDE}"),
        format!("link add tgo netns {OUTSIDE} type veth peer name taut-goal-o"),
        format!("link set taut-goal-o master {BRIDGE} up"),
        format!("-n {OUTSIDE} addr add 10.80.0.9/24 dev tgo"),
        format!("-n {OUTSIDE} link set tgo up"),
        format!("-n {BEHIND_TAP} link add br0 type bridge"),
        format!("-n {BEHIND_TAP} link set br0 up"),
        format!("-n {BEHIND_TAP} link set tap0 master br0"),
        format!("link add tgb netns {BEHIND_TAP} type veth peer name taut-goal-b"),
        format!("-n {BEHIND_TAP} link set tgb master br0 up"),
        format!("link set taut-goal-b master {BRIDGE} up"),
    ] {
        lab.run(&ip(words))?;
    }
    lab.micro("by-uplink", "10.80.0.5", "")?;
    let file =
        "kind = \"micro\"\nmemory = \"64MiB\"\n[[nic]]\nportgroup = \"behind\"\nip = \"10.80.0.6/24\"\n";
    lab.start_vm("by-tap", file)?;
    let pairs = format!("by-uplink netns/{OUTSIDE} --versus by-tap netns/{OUTSIDE}");
    let addresses = "--address 10.80.0.9 --versus-address 10.80.0.9";
    compare(lab, results, "UP1-micro-", &format!("{pairs} {addresses}"), "TAP port")
}

/// Runs both benches for two pairs of end points, the first by the uplink.
fn compare(lab: &mut Lab, results: &mut Results, goals: &str, pairs: &str, rival: &str) -> Measured<()> {
    let (each, repeats) = lab.pick((4, 7), (2, 2));
    for (goal, bench, figure, unit) in BENCHES {
        let (kind, more) = bench.split_once(' ').unwrap_or((bench, ""));
        let report = lab.bench(format!("{kind} {pairs} --duration {each} --repeat {repeats} {more}"))?;
        let mut detail = Vec::new();
        for (name, side) in [("uplink", "a"), (rival, "b")] {
            let median = report.number(&format!("{side}.median.{figure}"))?;
            detail.push(format!("{name} {} {unit}", shown(median.round())));
        }
        results.record(&format!("{goals}{goal}"), [versus(&report, figure)?], detail.join(", "));
    }
    Ok(())
}

fn beside_ovs(lab: &mut Lab, rig: &mut Rig, results: &mut Results, far: &str) -> Measured<()> {
    let (each, rounds) = lab.pick((4, 7), (2, 2));
    rig.set_ovs(&["userspace-tso-enable=true"]);
    rig.resume(lab, &Switch::OVS)?;
    let twin = rig.start_ovs_twin(lab, "delta")?;
    lab.prefer(twin.pid);
    let [card, _] = cable(lab, OVS_CARD)?;
    lab.run(&Command::new("ip").args(format!("link set {card} up")))?;
    rig.ovs_vsctl(lab, &format!("add-port br0 {card}"))?;
    let polled = twin.end_point();
    lab.until("the twin on OVS answers", 60, |lab| {
        let answers = lab.taut(format!("bench rr {polled} {far} --duration 0.1")).is_ok();
        lab.sleep(if answers { 0.0 } else { 0.5 })?;
        Ok(answers)
    })?;
    // The twin has its address now.
    lab.taut("vm stop delta")?;
    for (goal, bench, figure, unit) in BENCHES {
        let (kind, more) = bench.split_once(' ').unwrap_or((bench, ""));
        let rounds = Rounds::take(Plan::exactly(rounds), &["uplink", "ovs"], None, |cell| {
            // OVS's thread polls CPU 0 as long as it runs: it is stopped while taut is measured.
            let guest = if cell == "uplink" {
                rig.pause(lab, &Switch::OVS);
                "gamma"
            } else {
                rig.resume(lab, &Switch::OVS)?;
                &polled
            };
            lab.sleep(0.5)?;
            let report = lab.bench(format!("{kind} {guest} {far} --duration {each} {more}"))?;
            Ok(Sample::new(report.at("a.median")?))
        });
        rig.resume(lab, &Switch::OVS)?;
        let rounds = rounds?;
        let median =
            |cell: &str| -> Measured<String> { Ok(shown(rounds.median(cell, figure)?.value.round())) };
        let detail = format!("uplink {} {unit}, OVS {} {unit}", median("uplink")?, median("ovs")?);
        results.record(&format!("UP1-ovs-{goal}"), [rounds.ratio("uplink", "ovs", figure)?], detail);
    }
    Ok(())
}
