//! SE12: the fabric is killed while the file system of the state is frozen, as on storage that
//! hangs. Traffic has to come back before it is thawed.

use std::path::{Path, PathBuf};

use super::ports::{attach_ports, ports_command};
use crate::figure::{Bound, shown};
use crate::lab::{DaemonOptions, FileSystem, Lab};
use crate::machine::Doc;
use crate::reason::{Context as _, Measured, require};
use crate::row::{Goal, Results, Row};

const PORTS: usize = 8;
/// MiB of the file system.
const SIZE: u32 = 128;
/// Time without a kill in ms. The file system stays frozen for twice as long after each kill.
const SETTLE: u32 = 500;

const KILL: &str = include_str!("kill.sh");

pub(super) const ROW: Row = Row {
    id: "SE12",
    what: "how long traffic stands still when the fabric is killed while the state's disk hangs",
    on: "an ext4 file system with the state and the logs, frozen at each kill; 4 pairs of ports",
    goals: &[
        Goal::new(
            "SE12",
            &[
                Bound::Stated("ms gap, p50"),
                Bound::Stated("ms gap, p99"),
                Bound::AtMost(200.0, "ms gap at most"),
                Bound::Exactly(0.0, "hung"),
                Bound::AtLeast(20.0, "kills"),
            ],
        ),
        Goal::new("SE12-thawed", &[Bound::AtMost(5.0, "s until a setting is made")]),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let load = lab.example("taut-bench", "restart")?;
    let state = lab.folder().join("state");
    let disk = lab.mount_ext4(&state, SIZE)?;
    lab.start_lan(DaemonOptions::default().preferred())?;
    let sockets = attach_ports(lab, "se12", PORTS)?;
    // Thawed whatever happens: nothing else ends before.
    let found = kills(lab, &load, &disk, &sockets);
    let thaw = disk.thaw_command();
    let began = lab.now();
    let thawed = lab.clean_up(|lab| lab.run(&thaw)).when("it was frozen to the end");
    let found = found?;
    thawed?;
    record(lab, results, &found)?;
    lab.taut("portgroup set lan --promiscuous on")?;
    let kills = found.numbers("said", "killed")?.len();
    lab.until("the deaths are in the record of events", 30, |lab| {
        let events = lab.taut("events")?.stdout;
        Ok(events.lines().iter().filter(|line| line.contains("fabric.died")).count() >= kills)
    })?;
    let took = lab.now().saturating_sub(began).as_secs_f64();
    results.record("SE12-thawed", [took], "by the same daemon");
    Ok(())
}

/// Kills the fabric again and again under load.
fn kills(lab: &mut Lab, load: &Path, disk: &FileSystem, sockets: &[PathBuf]) -> Measured<Doc> {
    let script = lab.keep("kill.sh", KILL)?;
    // Owes the thaw before the first freeze.
    disk.freeze_command(lab)?;
    let record = lab.folder().join("killed");
    let command = format!(
        "sh '{}' '{}' '{}' '{}'",
        script.display(),
        disk.path.display(),
        lab.program("taut").display(),
        record.display()
    );
    let times = lab.pick(40, 20);
    let options = format!("--events {times} --packed --settle-ms {SETTLE}");
    let loaded = ports_command(lab, load, sockets, &options, &command)?;
    lab.run(&loaded)?.json()
}

fn record(lab: &mut Lab, results: &mut Results, found: &Doc) -> Measured<()> {
    let killed = found.numbers("said", "killed")?;
    let mut different = killed.clone();
    different.sort_by(f64::total_cmp);
    different.dedup();
    let is_granted = lab.machine().takes_for_granted();
    require(different.len() == killed.len() || is_granted, "a process was killed twice")?;
    let number = |path: &str| found.number(path);
    let detail = format!(
        "{} frames, gap of a port without a kill {} ms, most frames lost of a port at a kill {}",
        shown(number("frames")?),
        shown(number("calm_ms.2")?),
        shown(number("most_lost")?)
    );
    let gap = |at: usize| number(&format!("worst_port_gap_ms.{at}"));
    let kills = if is_granted { number("events")? } else { killed.len() as f64 };
    results.record("SE12", [gap(0)?, gap(1)?, gap(2)?, number("hung")?, kills], detail);
    Ok(())
}
