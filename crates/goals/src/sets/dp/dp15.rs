//! DP15: upgrade and kill -9 under load, with 32 pairs of ports and every kind of ring: frames
//! lost, doubled or damaged, and the longest silence. Beside it the restart of OVS-DPDK, whose
//! ports are clients of sockets that stay, as its manual advises.

use std::path::PathBuf;

use super::beside::OVS;
use crate::figure::{Bound, Value, shown};
use crate::lab::rig::{Restart, Switch};
use crate::lab::{DaemonOptions, Lab};
use crate::machine::{Command, Doc};
use crate::reason::Measured;
use crate::row::{Goal, Results, Row};

const PORTS: usize = 64;
/// Most frames of a ring that may be lost or doubled by a kill: a burst.
const BURST: f64 = 64.0;

pub(super) const ROW: Row = Row {
    id: "DP15",
    what: "upgrade and kill -9 under load",
    on: "32 pairs of ports with every kind of ring, the load on CPU 1",
    goals: &[
        Goal::new(
            "DP15-upgrade",
            &[
                Bound::Below(50.0, "ms gap, p50"),
                Bound::Exactly(0.0, "links down"),
                Bound::Exactly(0.0, "hung"),
                Bound::Exactly(0.0, "late"),
                Bound::Exactly(0.0, "damaged"),
                Bound::Exactly(0.0, "lost"),
                Bound::Exactly(0.0, "doubled"),
            ],
        ),
        Goal::new(
            "DP15-kill",
            &[
                Bound::Below(150.0, "ms gap, p50"),
                Bound::Exactly(0.0, "links down"),
                Bound::Exactly(0.0, "hung"),
                Bound::Exactly(0.0, "late"),
                Bound::Exactly(0.0, "damaged"),
                Bound::AtMost(BURST, "lost of a ring at once"),
                Bound::AtMost(BURST, "doubled of a ring at once"),
            ],
        ),
        Goal::beside("DP15-ovs-planned", &[Bound::Stated("ms gap, p50")], OVS),
        Goal::beside("DP15-ovs-killed", &[Bound::Stated("ms gap, p50")], OVS),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let load = lab.example("taut-bench", "restart")?;
    let outcome = own(lab, results, &load);
    results.settle(&["DP15-upgrade", "DP15-kill"], outcome);
    if results.has("DP15-ovs-planned") { Ok(()) } else { ovs(lab, results, &load) }
}

fn sockets(lab: &Lab, name: &str) -> Vec<PathBuf> {
    (0..PORTS).map(|port| lab.folder().join(format!("{name}-{port}"))).collect()
}

/// Loads the ports of these sockets while `command` replaces the switch.
fn restarts(
    lab: &mut Lab,
    load: &PathBuf,
    sockets: &[PathBuf],
    (options, command): (&str, String),
) -> Measured<Doc> {
    let mut loaded =
        Command::new("taskset").args("-c 1").arg(load).args(options).arg("--command").arg(command);
    loaded = loaded.arg("--").limit(1800).record("restart").env("TAUT_SOCKET", &lab.daemon()?.socket);
    for socket in sockets {
        loaded = loaded.arg(socket);
    }
    lab.run(&loaded)?.json()
}

fn own(lab: &mut Lab, results: &mut Results, load: &PathBuf) -> Measured<()> {
    let times = lab.pick(100, 8);
    lab.start_lan(DaemonOptions::default().preferred())?;
    let sockets = sockets(lab, "dp15");
    for (port, socket) in sockets.iter().enumerate() {
        let to = format!("dp15-{port} --portgroup lan --mac 02:11:00:00:00:{port:02x}");
        lab.taut(format!("port attach {to} --path {} --listen", socket.display()))?;
    }
    lab.until("the ports listen", 10, |lab| Ok(sockets.iter().all(|socket| lab.machine().exists(socket))))?;
    let taut = lab.program("taut").display().to_string();
    let options = format!("--events {times} --packed");
    for (goal, command, last) in [
        ("DP15-upgrade", format!("'{taut}' -o json daemon upgrade-fabric"), ["lost", "doubled"]),
        (
            "DP15-kill",
            format!("kill -9 $('{taut}' -o json daemon show | jq .fabric_pid)"),
            ["most_lost", "most_doubled"],
        ),
    ] {
        let found = restarts(lab, load, &sockets, (&options, command))?;
        let mut values = vec![Value::of(found.number("gap_ms.0")?)];
        for name in ["link_downs", "hung", "late", "corrupted"].iter().chain(&last) {
            values.push(Value::of(found.number(name)?));
        }
        let steps = if goal == "DP15-upgrade" { format!("; {}", steps(&found)?) } else { String::new() };
        results.record(goal, values, detail(&found)? + &steps);
    }
    Ok(())
}

fn ovs(lab: &mut Lab, results: &mut Results, load: &PathBuf) -> Measured<()> {
    let times = lab.pick(5, 2);
    lab.with_rig(|lab, rig| {
        rig.resume(lab, &Switch::OVS)?;
        rig.ovs_vsctl(lab, "set bridge br0 fail-mode=standalone")?;
        let sockets = sockets(lab, "dp15-ovs");
        for (port, socket) in sockets.iter().enumerate() {
            rig.add_ovs_client(lab, &format!("dp{port}"), socket)?;
        }
        for (goal, how) in [("DP15-ovs-planned", Restart::Planned), ("DP15-ovs-killed", Restart::Killed)] {
            let script = rig.ovs_restart(lab, how)?;
            let options = format!("--listen --events {times} --settle-ms 2000");
            let command = format!("sh '{}'", script.display());
            let found = restarts(lab, load, &sockets, (&options, command))?;
            let said = format!("frames for others that it floods count as damaged; {}", detail(&found)?);
            results.record(goal, [found.number("gap_ms.0")?], said);
        }
        Ok(())
    })
}

fn detail(found: &Doc) -> Measured<String> {
    let number = |name: &str| -> Measured<String> { Ok(shown(found.number(name)?)) };
    Ok(format!(
        "{} times, {} frames, gap p99 {} ms, longest {} ms, of the worst port {} ms, without an event {} ms; \
         lost {}, doubled {}, late {}, damaged {}",
        number("events")?,
        number("frames")?,
        number("gap_ms.1")?,
        number("gap_ms.2")?,
        number("worst_port_gap_ms.2")?,
        number("calm_ms.2")?,
        number("lost")?,
        number("doubled")?,
        number("late")?,
        number("corrupted")?
    ))
}

/// Writes the medians of an upgrade's steps.
fn steps(found: &Doc) -> Measured<String> {
    let mut parts = Vec::new();
    for step in ["start", "configure", "prepare", "stop", "take_over"] {
        let median = Value::median(&found.numbers("said", &format!("{step}_us"))?)?.value;
        parts.push(format!("{step} {}", shown(median / 1000.0)));
    }
    Ok(format!("an upgrade's steps in ms, p50: {}", parts.join(", ")))
}
