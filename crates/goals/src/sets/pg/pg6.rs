//! PG6: cost of the daemon and of `taut top` on a host with many ports and VMs that do nothing.

use crate::figure::{Bound, median, shown};
use crate::lab::{DaemonOptions, Lab};
use crate::machine::Command;
use crate::reason::{Measured, require};
use crate::row::{Goal, Results, Row};

/// Microguests that do nothing, each with a port.
const MACHINES: u32 = 200;
/// Ports in all.
const PORTS: u32 = 500;

pub(super) const ROW: Row = Row {
    id: "PG6",
    what: "CPU time of the daemon while nothing happens, beside that of reading memory that has rested; time of \
           `taut net stats` and `taut vm stats`; time of a refresh of `taut top`",
    on: "500 ports and 200 microguests that do nothing",
    goals: &[
        Goal::new(
            "PG6-idle",
            &[
                Bound::Below(1.0, "% of a core"),
                Bound::Stated("MiB of the daemon"),
                Bound::Stated("us to read a page of memory that has rested a second"),
            ],
        ),
        Goal::new("PG6-answers", &[Bound::Below(200.0, "ms, all ports"), Bound::Below(200.0, "ms, all VMs")]),
        Goal::new(
            "PG6-top",
            &[Bound::Below(50.0, "ms, view of CPUs"), Bound::Below(50.0, "ms, the slowest other view")],
        ),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let (machines, ports, seconds) = lab.pick((MACHINES, PORTS, 60.0), (4, 10, 5.0));
    let rested = lab.example("taut-tests", "rested_memory")?;
    // The run directory is on tmpfs, as `/run` is, so that the counters file can have huge pages.
    lab.mount_tmpfs(&lab.folder().join("run"), 256)?;
    let daemon = lab.start_lan(DaemonOptions::default())?;
    for number in 0..machines {
        let nic = format!(
            "[[nic]]\nportgroup = \"lan\"\nip = \"10.84.{}.{}/16\"\n",
            number / 200,
            1 + number % 200
        );
        lab.start_vm(&format!("idle{number}"), &format!("kind = \"micro\"\nmemory = \"16MiB\"\n{nic}"))?;
    }
    for number in machines..ports {
        let socket = lab.folder().join(format!("port{number}.sock"));
        lab.taut(format!("port attach spare{number} --portgroup lan --listen --path {}", socket.display()))?;
    }
    // The first samples are written, and VMs that were started have come to rest.
    lab.sleep(if lab.quick() { 3.0 } else { 30.0 })?;
    let before = lab.cpu_ns(daemon.job.pid)?;
    lab.sleep(seconds)?;
    let percent = (lab.cpu_ns(daemon.job.pid)? - before) / (1e7 * seconds);
    let memory = lab.usage(daemon.job.pid)?.memory / 1024.0;
    let detail = format!("{machines} microguests, {ports} ports, over {} s", shown(seconds));
    let times = [time_of(lab, "net", ports)?, time_of(lab, "vm", machines)?];
    // The daemon reads some MiB once a second. Its CPU time depends on the price of such memory.
    let rested = lab.run(&Command::new(&rested).record("rested"))?.stdout.json()?;
    results.record("PG6-idle", [percent, memory, rested.number("us_per_page")?], detail);
    top(lab, machines, ports, results)?;
    results.record("PG6-answers", times, "median of 9 runs of the command line; a period of five minutes");
    Ok(())
}

/// Measures refreshes of `taut top`. It sees this host's VMs, and answers of as many ports, which
/// the program makes up: the daemon's time is that of [`time_of`].
fn top(lab: &mut Lab, machines: u32, ports: u32, results: &mut Results) -> Measured<()> {
    let program = lab.example("taut-top", "refresh")?;
    let words = format!("0 1 {ports} {}", lab.pick(30, 5));
    let found = lab.run(&Command::new(&program).args(words).limit(300).record("top"))?.stdout.json()?;
    let seen = found.count("machines")?;
    let is_whole = seen >= u64::from(machines) || lab.machine().is_stand_in();
    require(is_whole, format!("`taut top` sees {seen} of {machines} VMs"))?;
    let of = |view: &str| found.number(&format!("ms.{view}.p50"));
    let others = ["memory", "network", "disk", "interrupt", "vm-disk"];
    let others = others.map(of).into_iter().collect::<Measured<Vec<_>>>()?;
    let detail = format!("medians; {} threads", shown(found.number("threads")?));
    results.record("PG6-top", [of("cpu")?, others.into_iter().fold(0.0, f64::max)], detail);
    Ok(())
}

/// Returns the median time of `taut KIND stats` in ms. The command must list so many.
fn time_of(lab: &mut Lab, kind: &str, count: u32) -> Measured<f64> {
    let mut times = Vec::new();
    for round in 0..9 {
        let name = format!("{kind}-stats-{round}");
        let command = lab.taut_command(format!("-o json {kind} stats")).record(&name);
        let ended = lab.run(&command)?;
        let listed = ended.stdout.json()?.list("")?.len();
        let is_whole = listed == count as usize || lab.machine().is_stand_in();
        require(is_whole, format!("`taut {kind} stats` lists {listed} of {count}"))?;
        times.push(ended.took.as_secs_f64() * 1000.0);
    }
    median(&times)
}
