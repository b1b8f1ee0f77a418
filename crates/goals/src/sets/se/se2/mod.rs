//! SE2: the file systems of run folder, state and logs are full in turn, then freed. Nobody loses a
//! frame by it, nothing is leaked, and everything works again by itself.

mod traffic;

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::ports::{attach_ports, ports_command};
use crate::figure::{Bound, Value, shown};
use crate::lab::inventory::{Inventory, Kind, require_some};
use crate::lab::{DaemonOptions, FileSystem, Lab};
use crate::machine::{Doc, Signal};
use crate::reason::{Measured, require};
use crate::row::{Goal, Results, Row};
use traffic::Traffic;

/// MiB of each file system.
const SIZE: u32 = 24;
const PORTS: usize = 4;
/// Time before and after each act, in ms.
const SETTLE: u32 = 500;
/// Time in which processes may end.
const PATIENCE: Duration = Duration::from_secs(15);

const FULL: &str = include_str!("full.sh");
const FREE: &str = include_str!("free.sh");

const BOUNDS: &[Bound] = &[
    Bound::Exactly(0.0, "lost"),
    Bound::Exactly(0.0, "unsent"),
    Bound::AtMost(200.0, "ms silence of a port"),
    Bound::Exactly(0.0, "processes leaked"),
    Bound::Exactly(0.0, "processes ended"),
    Bound::Exactly(0.0, "commands without an answer"),
    Bound::AtMost(30.0, "s until settings and starts succeed"),
];

const KILLED: &[Bound] =
    &[Bound::Exactly(0.0, "hung"), Bound::Stated("ms silence of a port"), Bound::AtLeast(3.0, "kills")];

pub(super) const ROW: Row = Row {
    id: "SE2",
    what: "full file systems of run folder, state and logs, and what comes back when they are freed",
    on: "three file systems in memory; two pairs of ports, and two microguests that ping",
    goals: &[
        Goal::new("SE2-run", BOUNDS),
        Goal::new("SE2-run-killed", KILLED),
        Goal::new("SE2-state", BOUNDS),
        Goal::new("SE2-state-killed", KILLED),
        Goal::new("SE2-log", BOUNDS),
        Goal::new("SE2-log-killed", KILLED),
    ],
    run,
};

/// What a round needs.
struct Stage {
    load: PathBuf,
    sockets: Vec<PathBuf>,
    before: Inventory,
}

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let load = lab.example("taut-bench", "restart")?;
    let folder = lab.folder().to_owned();
    let disks = ["run", "state", "log"].map(|name| lab.mount_tmpfs(&folder.join(name), SIZE));
    let options = DaemonOptions::default().args(["--log-dir", &folder.join("log").display().to_string()]);
    lab.start_lan(options.preferred())?;
    lab.taut("portgroup create spare --vswitch sw")?;
    lab.micro("m1", "10.80.0.1", "")?;
    lab.micro("m2", "10.80.0.2", "")?;
    lab.create_vm("spare", "kind = \"micro\"\nmemory = \"64MiB\"\n[[nic]]\nportgroup = \"spare\"\n")?;
    let sockets = attach_ports(lab, "se2", PORTS)?;
    // The VM may run or not when processes are counted again.
    lab.taut("vm start --wait spare")?;
    lab.until("a console process runs", 10, |lab| Ok(console(lab).is_ok()))?;
    let before = lab.inventory()?;
    if !lab.machine().takes_for_granted() {
        require_some(&before, &[Kind::Process])?;
    }
    let stage = Stage { load, sockets, before };
    for (disk, goals) in disks.into_iter().zip(ROW.goals.chunks(2)) {
        let disk = disk?;
        let outcome = round(lab, results, &stage, &disk, [goals[0].id, goals[1].id]);
        results.settle(&[goals[0].id, goals[1].id], outcome);
        if lab.machine().exists(&disk.path.join("filler")) && !lab.machine().is_stand_in() {
            disk.free(lab)?;
        }
    }
    Ok(())
}

/// Fills one file system, kills fabric and console, and makes room again.
fn round(
    lab: &mut Lab,
    results: &mut Results,
    stage: &Stage,
    disk: &FileSystem,
    [goal, killed]: [&str; 2],
) -> Measured<()> {
    let before = survivors(lab)?;
    let attempts = lab.pick("20", "3");
    let seconds = lab.pick(40, 6);
    let full_script = script(lab, disk, "full", FULL, attempts)?;
    let traffic = Traffic::start(lab, seconds)?;
    let full = act(lab, stage, &full_script, 1)?;
    let pings = traffic.end(lab)?;
    let ended = survivors(lab)?.iter().zip(&before).filter(|(now, before)| now != before).count();
    let is_granted = lab.machine().takes_for_granted();
    require(full.number("said.0.left")? < 1.0 || is_granted, "the file system did not stay full")?;
    let during = leaked(lab, &stage.before)?;

    let kills = lab.pick(10, 3);
    let kill = format!(
        "until pid=$('{}' -o json daemon show | jq -e .fabric_pid) && kill -9 \"$pid\"; do sleep 0.05; done; echo \
         '{{\"killed\": 1}}'",
        lab.program("taut").display()
    );
    let dead = act(lab, stage, &kill, kills)?;
    let console_before = console(lab)?;
    lab.machine().signal(console_before, Signal::Kill)?;

    let free_script = script(lab, disk, "free", FREE, "")?;
    let freed = act(lab, stage, &free_script, 1)?;
    let seconds = freed.number("said.0.ms")? / 1000.0;
    let fabric = lab.fabric_pid()?;
    lab.machine().signal(fabric, Signal::Kill)?;
    lab.until("another fabric runs", 30, |lab| Ok(lab.fabric_pid().is_ok_and(|pid| pid != fabric)))?;
    lab.until("another console process runs", 30, |lab| {
        Ok(console(lab).is_ok_and(|pid| pid != console_before))
    })?;
    let after = leaked(lab, &stage.before)?;

    let silence =
        Value::greatest(&[full.number("worst_port_gap_ms.2")?, freed.number("worst_port_gap_ms.2")?])?;
    let lost = full.number("lost")? + freed.number("lost")? + pings.lost;
    let detail = format!(
        "{} frames of ports and {} echoes; without an act a silence of {} ms; while it was full, {} of {attempts} \
         settings were made and {} starts accepted; leaked: {during}, {after} afterwards",
        shown(full.number("frames")? + freed.number("frames")?),
        shown(pings.answered),
        shown(full.number("calm_ms.2")?),
        shown(full.number("said.0.settings")?),
        shown(full.number("said.0.starts")?),
    );
    let leaks = (during + after) as f64;
    let values = [
        Value::of(lost),
        Value::of(pings.unsent),
        Value::of(silence.value),
        Value::of(leaks),
        Value::count(ended),
        Value::of(full.number("said.0.slow")?),
        Value::of(seconds),
    ];
    results.record(goal, values, detail);
    let happened = dead.sum("said", "killed")?;
    let values = [dead.number("hung")?, dead.number("worst_port_gap_ms.2")?, happened];
    let detail = format!(
        "most frames lost of a port at once {}, doubled {}",
        shown(dead.number("most_lost")?),
        shown(dead.number("most_doubled")?)
    );
    results.record(killed, values, detail);
    Ok(())
}

/// Writes a script, and returns the command that runs it for this file system.
fn script(lab: &mut Lab, disk: &FileSystem, name: &str, text: &str, last: &str) -> Measured<String> {
    let of = disk.path.file_name().unwrap_or_default().display().to_string();
    let script = lab.keep(&format!("{name}-{of}.sh"), text)?;
    let taut = lab.program("taut");
    Ok(format!("sh '{}' '{}' '{}' {last}", script.display(), disk.path.display(), taut.display()))
}

/// Runs a command under the load of the ports, and returns what became of their frames.
fn act(lab: &mut Lab, stage: &Stage, command: &str, times: u32) -> Measured<Doc> {
    let options = format!("--events {times} --packed --settle-ms {SETTLE}");
    let loaded = ports_command(lab, &stage.load, &stage.sockets, &options, command)?;
    lab.run(&loaded)?.json()
}

/// Numbers of the processes that nobody kills while a file system becomes full.
fn survivors(lab: &mut Lab) -> Measured<Vec<u32>> {
    Ok(vec![lab.daemon()?.job.pid, lab.fabric_pid()?, lab.vm_pid("m1")?, lab.vm_pid("m2")?, console(lab)?])
}

/// Number of the console process that runs.
fn console(lab: &mut Lab) -> Measured<u32> {
    let record = lab.daemon()?.folder.join("run/console.pid");
    let pid = u32::try_from(lab.read(record)?.json()?.count("pid")?)?;
    let is_there = lab.machine().exists(Path::new(&format!("/proc/{pid}/exe")));
    require(is_there, format!("the console process {pid} is gone"))?;
    Ok(pid)
}

/// Counts the processes beyond those that were there before, after a moment for what is ending.
fn leaked(lab: &mut Lab, before: &Inventory) -> Measured<u64> {
    let end = lab.now() + PATIENCE;
    loop {
        let surplus = lab.inventory()?.beyond(before);
        let count = surplus.of(Kind::Process);
        if count == 0 || lab.now() >= end {
            if count > 0 {
                lab.note(format!("leaked: {surplus}"));
            }
            return Ok(count);
        }
        lab.sleep(0.1)?;
    }
}
