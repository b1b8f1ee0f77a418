//! SE3: consoles that print without end. Their logs keep within their limit, the consoles stay
//! usable, and neighbours notice nothing.

use std::path::Path;
use std::time::Duration;

use crate::figure::{Bound, Value, shown};
use crate::lab::{DaemonOptions, Lab, NEWEST, OLDEST};
use crate::machine::{Command, Doc, Job};
use crate::reason::{Measured, require};
use crate::row::{Goal, Results, Row};

const FLOOD: &str = include_str!("flood.sh");
/// Looks at the disk, at least.
const LOOKS: usize = 10;
/// Bytes of a MiB.
const MIB: f64 = 1_048_576.0;

const NEIGHBOURS: &[Bound] = &[
    Bound::AtMost(50.0, "ms more until an echo, p99"),
    Bound::Exactly(0.0, "without an echo"),
    Bound::Exactly(0.0, "frames lost"),
];

pub(super) const ROW: Row = Row {
    id: "SE3",
    what: "consoles that print without end: disk, use of the console, neighbours",
    on: "a stand-in that writes in QEMU's place, and a Debian guest; beside them a Debian guest and two microguests",
    goals: &[
        Goal::new(
            "SE3-socket",
            &[Bound::AtMost(4.0, "MiB on disk"), Bound::AtMost(1000.0, "ms until a line is seen afterwards")],
        ),
        Goal::new("SE3-socket-neighbours", NEIGHBOURS),
        Goal::new(
            "SE3-guest",
            &[Bound::AtMost(4.0, "MiB on disk"), Bound::Exactly(0.0, "echoes missing afterwards")],
        ),
        Goal::new("SE3-guest-neighbours", NEIGHBOURS),
    ],
    run,
};

/// Results of the neighbours' measurements.
struct Neighbours {
    echo: Doc,
    ping: Doc,
}

/// Measurements of the neighbours that are under way.
struct Measuring {
    echo: Job,
    ping: Job,
}

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let program = lab.example("taut-tests", "console_load")?;
    lab.start_lan(DaemonOptions::default())?;
    lab.vm("neighbour", NEWEST, "10.80.0.1", "")?;
    lab.micro("m1", "10.80.0.2", "")?;
    lab.micro("m2", "10.80.0.3", "")?;
    let seconds = lab.pick(20, 5);
    let measuring = measure(lab, &program, seconds)?;
    let calm = end(lab, &measuring, seconds)?;
    let outcome = socket(lab, results, &program, &calm, seconds);
    results.settle(&["SE3-socket", "SE3-socket-neighbours"], outcome);
    guest(lab, results, &program, &calm, seconds)
}

/// Begins to measure the neighbours.
fn measure(lab: &mut Lab, program: &Path, seconds: u32) -> Measured<Measuring> {
    let door = lab.vm_show("neighbour")?.text("status.console_socket")?;
    let echo = Command::new(program).args(["echo", &door, &seconds.to_string()]).record("echo");
    let echo = lab.start(&echo)?;
    let ping = lab.bench_command(format!("ping m1 m2 --interval 2 --duration {seconds}"));
    Ok(Measuring { echo, ping: lab.start(&ping)? })
}

fn end(lab: &mut Lab, measuring: &Measuring, seconds: u32) -> Measured<Neighbours> {
    let limit = Duration::from_secs(u64::from(seconds) + 60);
    let echo = lab.wait(&measuring.echo, limit)?.json()?;
    let ping = lab.wait(&measuring.ping, limit)?.json()?;
    Ok(Neighbours { echo, ping })
}

/// Has a stand-in write to a VM's console while its neighbours are measured.
fn socket(
    lab: &mut Lab,
    results: &mut Results,
    program: &Path,
    calm: &Neighbours,
    seconds: u32,
) -> Measured<()> {
    let disk = lab.folder().join("empty.img");
    lab.run(&Command::new("truncate").args("-s 1M").arg(&disk))?;
    let file = format!("memory = \"64MiB\"\n[disk]\npath = \"{}\"\n", disk.display());
    lab.create_vm("flooded", &file)?;
    lab.taut("vm start flooded")?;
    let door = lab.vm_show("flooded")?.text("status.console_socket")?;
    lab.until("people can connect", 20, |lab| Ok(lab.machine().exists(door.as_ref())))?;
    let bytes: u64 = lab.pick(2 << 30, 64 << 20);
    let pid = lab.vm_pid("flooded")?;
    let measuring = measure(lab, program, seconds)?;
    let words =
        ["flood", &pid.to_string(), "flooded/serial.sock", &door, &bytes.to_string(), &seconds.to_string()];
    let flood = lab.start(&Command::new(program).args(words).record("flood"))?;
    let looks = look(lab, "flooded", &flood)?;
    let flood = lab.wait(&flood, Duration::from_secs(600))?.json()?;
    let neighbours = end(lab, &measuring, seconds)?;
    let written = flood.number("bytes")?;
    let is_granted = lab.machine().takes_for_granted();
    require(written >= bytes as f64 || is_granted, format!("{written} bytes were written, not {bytes}"))?;
    // What was seen last is in the log, too.
    let log = lab.vm_show("flooded")?.text("status.console_log")?;
    lab.until("the line is in the log", 10, |lab| Ok(lab.read(&log)?.contains(&format!("marker {pid}"))))?;
    let detail = format!(
        "{} MiB in {} s, {} looks; a write took {} ms at most",
        shown((written / MIB).floor()),
        shown(flood.number("seconds")?),
        looks.len(),
        shown(flood.number("longest_write_ms")?)
    );
    results.record("SE3-socket", [Value::greatest(&looks)?, flood.number("seen_ms")?.into()], detail);
    compare(results, "SE3-socket-neighbours", calm, &neighbours)?;
    lab.taut("vm delete --force flooded").map(drop)
}

/// Has a guest write to its own console while its neighbours are measured.
fn guest(
    lab: &mut Lab,
    results: &mut Results,
    program: &Path,
    calm: &Neighbours,
    seconds: u32,
) -> Measured<()> {
    let mib = lab.pick("64", "6");
    let image = lab.folder().join("flood");
    let setup = lab.setup();
    let make = Command::new("bash").args(["-c", FLOOD, "flood.sh"]).arg(&setup.checkout).arg(&setup.images);
    lab.boot_of(OLDEST)?;
    lab.run(&make.arg(OLDEST).arg(&image).arg(mib))?;
    let image = image.display();
    let file =
        format!("memory = \"192MiB\"\n[boot]\nkernel = \"{image}/vmlinuz\"\ninitrd = \"{image}/initrd\"\n");
    lab.create_vm("printing", &file)?;
    lab.taut("vm start printing")?;
    let log = lab.vm_show("printing")?.text("status.console_log")?;
    // It is full of what the guest writes before the neighbours are measured.
    lab.until("the log grows", 120, |lab| Ok(on_disk(lab, "printing")? > 0.25))?;
    let measuring = measure(lab, program, seconds)?;
    let mut looks = look(lab, "printing", &measuring.echo)?;
    let neighbours = end(lab, &measuring, seconds)?;
    let mut text = false;
    lab.until("the guest has written everything", 3600, |lab| {
        looks.push(on_disk(lab, "printing")?);
        text = lab.read(&log)?.contains("the flood is over");
        Ok(text)
    })?;
    let door = lab.vm_show("printing")?.text("status.console_socket")?;
    let echo =
        lab.run(&Command::new(program).args(["echo", &door, "2"]).record("echo-afterwards"))?.json()?;
    require(echo.number("count")? > 0.0, "no echo came at all")?;
    let detail = format!("{mib} MiB, {} looks", looks.len());
    results.record("SE3-guest", [Value::greatest(&looks)?, echo.number("unanswered")?.into()], detail);
    compare(results, "SE3-guest-neighbours", calm, &neighbours)
}

/// Looks at a VM's logs until a job has ended.
fn look(lab: &mut Lab, vm: &str, job: &Job) -> Measured<Vec<f64>> {
    let mut looks = Vec::new();
    while lab.machine().is_running(job) {
        looks.push(on_disk(lab, vm)?);
        lab.sleep(0.02)?;
        if lab.machine().is_stand_in() {
            break;
        }
    }
    let is_granted = lab.machine().takes_for_granted();
    require(looks.len() >= LOOKS || is_granted, format!("{} looks at the disk, not {LOOKS}", looks.len()))?;
    Ok(looks)
}

/// MiB that the logs of a VM take.
fn on_disk(lab: &mut Lab, vm: &str) -> Measured<f64> {
    let folder = lab.daemon()?.folder.join("state/log/vms").join(vm);
    let du = lab.run(&Command::new("du").args("-s -B1").arg(folder))?.stdout;
    Ok(du.number_between("", "\t")? / MIB)
}

/// Compares what the neighbours were given with what they get while nobody prints.
fn compare(results: &mut Results, goal: &str, calm: &Neighbours, now: &Neighbours) -> Measured<()> {
    let p99 = |neighbours: &Neighbours| neighbours.echo.number("p99_ms");
    let lost = |neighbours: &Neighbours| neighbours.ping.sum("a.repeats", "lost");
    let detail = format!(
        "an echo takes {} and {} ms (p50, p99), {} and {} without the flood; {} echoes, {} frames",
        shown(now.echo.number("p50_ms")?),
        shown(p99(now)?),
        shown(calm.echo.number("p50_ms")?),
        shown(p99(calm)?),
        shown(now.echo.number("count")?),
        shown(now.ping.sum("a.repeats", "count")?)
    );
    results.record(goal, [p99(now)? - p99(calm)?, now.echo.number("unanswered")?, lost(now)?], detail);
    Ok(())
}
