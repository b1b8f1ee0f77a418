//! QP14: cost of queue pairs and of the pace of streams for those who use neither: this build
//! beside the build before them, measured as UP14 is; and memory and CPU time of machines that do
//! nothing.
//!
//! Idle machines are meant to cost no CPU time more than before. A measurement cannot tell 0 from a
//! small number: time of interrupts, and of the kernel's work for other processes, counts
//! for the thread that it interrupts, so two runs of one build differ. [`RESOLUTION`] is the
//! difference that the row takes for none. The difference itself is printed.

use std::path::Path;

use crate::figure::{Bound, shown};
use crate::lab::{DaemonOptions, Lab};
use crate::reason::{Measured, require};
use crate::row::{Goal, Results, Row};
use crate::sets::hs::before::programs_of;
use crate::sets::hs::cost::{BOUND, measure};
use crate::sets::vc_g::cells::Cell;
use crate::sets::vc_g::guests::bench;

/// The commit before queue pairs, and its folder below cargo's target folder.
const BEFORE: (&str, &str) = ("d7b5e2b2", "before-queue-pairs");

/// Difference that the measurement does not tell from none, in percent of a CPU: 20 ms in 20 s.
const RESOLUTION: f64 = 0.1;

/// Microguests with VMCI devices that do nothing.
const IDLE: u32 = 30;

pub(super) const ROW: Row = Row {
    id: "QP14",
    what: "cost of queue pairs for VMs that have none, beside the build before them",
    on: "builds in alternation: switch, and VMCI sockets of microguests (streams on one pCPU); 30 idle microguests",
    goals: &[
        Goal::new("QP14-DP1-64", BOUND),
        Goal::new("QP14-VC-G1", BOUND),
        Goal::new(
            "QP14-idle",
            &[
                Bound::AtMost(64.0, "KiB more of daemon and fabric for each VM"),
                Bound::AtMost(RESOLUTION, "% of a CPU more of the fabric"),
            ],
        ),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let outcome = idle(lab, results);
    results.settle(&["QP14-idle"], outcome);
    lab.end_jobs();
    lab.stop_daemon()?;
    let old = programs_of(lab, BEFORE.0, BEFORE.1)?;
    measure(lab, results, &old, &ROW)
}

/// Compares idle machines of both builds.
fn idle(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let old = programs_of(lab, BEFORE.0, BEFORE.1)?;
    let own = lab.setup().programs.clone();
    let [before, after] = [of_idle(lab, &old)?, of_idle(lab, &own)?];
    let more = (after.memory - before.memory) / f64::from(IDLE);
    let detail = format!(
        "memory of daemon and fabric {} KiB, before {}; the fabric used {} % of a CPU, before {}",
        shown(after.memory),
        shown(before.memory),
        shown(after.percent),
        shown(before.percent)
    );
    results.record("QP14-idle", [more, after.percent - before.percent], detail);
    Ok(())
}

/// What a build uses while its VMs do nothing.
struct Idle {
    /// KiB of daemon and fabric that they share with nobody.
    memory: f64,
    /// CPU time of the fabric, in percent of one CPU.
    percent: f64,
}

fn of_idle(lab: &mut Lab, programs: &Path) -> Measured<Idle> {
    let daemon = lab.start_lan(DaemonOptions::default().programs(programs))?;
    for number in 1..=IDLE {
        let nic = format!("[[nic]]\nportgroup = \"lan\"\nip = \"10.82.0.{number}/24\"\n");
        // Buffers of a VMCI device take 17 MiB.
        let file = format!("kind = \"micro\"\nmemory = \"24MiB\"\n{nic}[vmci]\ndomains = [\"goals\"]\n");
        lab.start_vm(&format!("idle{number}"), &file)?;
    }
    let fabric = lab.fabric_pid()?;
    let seconds = lab.pick(20.0, 1.0);
    lab.sleep(3.0)?;
    let before = lab.cpu_ns(fabric)?;
    lab.sleep(seconds)?;
    let percent = (lab.cpu_ns(fabric)? - before) / (1e7 * seconds);
    let memory = lab.usage(fabric)?.memory + lab.usage(daemon.job.pid)?.memory;
    // The machines that did nothing were able to do something.
    let report = bench(lab, "idle1 idle2 --mode rr --message 64 --socket-size 64KiB --duration 0.2")?;
    require(Cell::of("vsock", 64).median(&report, "p50_us")? > 0.0, "the machines do not answer")?;
    lab.stop_daemon()?;
    Ok(Idle { memory, percent })
}
