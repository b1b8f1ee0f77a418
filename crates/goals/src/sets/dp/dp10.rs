//! DP10: two QEMU guests: TCP beside TAP and a Linux bridge with offloads, and request and response
//! beside a back end that polls (OVS-DPDK). Both sides have the same command lines, so the same
//! rings; taut's fabric and OVS's thread are on CPU 0, and everything has the same priority.

use super::beside::OVS;
use crate::figure::{Bound, shown};
use crate::lab::rig::Switch;
use crate::lab::{DaemonOptions, Lab, NEWEST, OLDEST, Twin};
use crate::reason::Measured;
use crate::rival::Rival;
use crate::rounds::{Plan, Rounds, Sample, versus};
use crate::row::{Goal, Results, Row};

const BRIDGE: &[Rival] = &[Rival::LinuxBridge];

pub(super) const ROW: Row = Row {
    id: "DP10",
    what: "TCP, request and response beside TAP + bridge and beside OVS-DPDK",
    on: "two QEMU guests a side, all with the same priority",
    goals: &[
        Goal::beside("DP10-stream", &[Bound::AtLeast(1.0, "x TAP + bridge")], BRIDGE),
        Goal::beside("DP10-rr", &[Bound::AtMost(1.0, "x TAP + bridge's p50")], BRIDGE),
        Goal::beside("DP10-tail", &[Bound::Below(1.0, "x OVS-DPDK's p99.9")], OVS),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    lab.start_lan(DaemonOptions::default().args("--fabric-cpus 0").preferred())?;
    lab.vm("alpha", OLDEST, "10.80.0.1", "")?;
    lab.vm("beta", NEWEST, "10.80.0.2", "")?;
    for name in ["alpha", "beta"] {
        let pid = lab.vm_pid(name)?;
        lab.prefer(pid);
    }
    if !results.has("DP10-rr") {
        let outcome = beside_bridge(lab, results);
        results.settle(&["DP10-stream", "DP10-rr"], outcome);
        lab.end_jobs();
    }
    if results.has("DP10-tail") { Ok(()) } else { beside_ovs(lab, results) }
}

/// Waits for twins and gives them the priority of the VMs.
fn ready(lab: &mut Lab, twins: &[Twin]) -> Measured<String> {
    for twin in twins {
        lab.prefer(twin.pid);
    }
    lab.until_twins_answer(twins)?;
    Ok(twins.iter().map(Twin::end_point).collect::<Vec<_>>().join(" "))
}

fn beside_bridge(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let twins = lab.bridge_twins(&["alpha", "beta"])?;
    let rival = ready(lab, &twins)?;
    let (each, repeats) = lab.pick((4, 7), (2, 2));
    let options = format!("alpha beta --versus {rival} --duration {each} --repeat {repeats}");
    for (goal, bench, (figure, unit)) in [
        ("DP10-stream", "stream --pattern auto", ("mbit_s", "Mbit/s")),
        ("DP10-rr", "rr", ("p50_us", "µs p50")),
    ] {
        let (kind, more) = bench.split_once(' ').unwrap_or((bench, ""));
        let report = lab.bench(format!("{kind} {options} {more}"))?;
        let sides = [("taut", "a"), ("TAP + bridge", "b")];
        let mut detail = Vec::new();
        for (name, side) in sides {
            let median = report.number(&format!("{side}.median.{figure}"))?;
            detail.push(format!("{name} {} {unit}", shown(median.round())));
        }
        results.record(goal, [versus(&report, figure)?], detail.join(", "));
    }
    Ok(())
}

fn beside_ovs(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let (each, rounds) = lab.pick((4, 7), (2, 2));
    lab.with_rig(|lab, rig| {
        rig.resume(lab, &Switch::OVS)?;
        let mut twins = Vec::new();
        for name in ["alpha", "beta"] {
            twins.push(rig.start_ovs_twin(lab, name)?);
        }
        let polled = ready(lab, &twins)?;
        let rounds = Rounds::take(Plan::exactly(rounds), &["taut", "ovs"], None, |cell| {
            // OVS's thread polls CPU 0 as long as it runs: it is stopped while taut is measured.
            let guests = if cell == "taut" {
                rig.pause(lab, &Switch::OVS);
                "alpha beta"
            } else {
                rig.resume(lab, &Switch::OVS)?;
                &polled
            };
            lab.sleep(0.5)?;
            let report = lab.bench(format!("rr {guests} --duration {each}"))?;
            Ok(Sample::new(report.at("a.median")?))
        });
        rig.resume(lab, &Switch::OVS)?;
        let rounds = rounds?;
        let detail = tail(&rounds, "taut")? + "; " + &tail(&rounds, "ovs")?;
        results.record("DP10-tail", [rounds.ratio("taut", "ovs", "p99_9_us")?], detail);
        Ok(())
    })
}

fn tail(rounds: &Rounds, cell: &str) -> Measured<String> {
    let figure = |name: &str| -> Measured<String> { Ok(shown(rounds.median(cell, name)?.value.round())) };
    Ok(format!("{cell} p50 {}, p99.9 {} µs", figure("p50_us")?, figure("p99_9_us")?))
}
