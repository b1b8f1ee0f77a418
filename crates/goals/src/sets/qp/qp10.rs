//! QP10: connections that do nothing, and one message after a second of silence, between Python
//! programs with the preload library through queue pairs.

use super::programs::echo::{Echo, Talk};
use super::programs::latency::Latencies;
use super::programs::{QUEUE_PAIRS, Way, start};
use crate::figure::{Bound, shown};
use crate::lab::{Lab, NEWEST};
use crate::reason::Measured;
use crate::row::{Goal, Results, Row};

/// Connections that do nothing.
const CONNECTIONS: u32 = 1000;
/// Memory that has a queue pair for each of them.
const MUCH: &str = "1GiB";

pub(super) const ROW: Row = Row {
    id: "QP10",
    what: "1,000 connections that do nothing, and one message of 64 B after a second of silence: a Python program with \
           the preload library through queue pairs",
    on: "two QEMU guests with Debian's newest kernel",
    goals: &[
        Goal::new(
            "QP10-idle",
            &[
                Bound::Below(0.1, "% of a CPU of the fabric"),
                Bound::Exactly(1000.0, "connections that answer afterwards"),
                Bound::Stated("attached ends of the guest that opened them"),
            ],
        ),
        Goal::new(
            "QP10-lone",
            &[Bound::AtMost(1.0, "x the p99 of blocking TCP"), Bound::Stated("x the p50 of blocking TCP")],
        ),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let echo = Echo::build(lab)?;
    start(lab, NEWEST, MUCH, &echo.files)?;
    let outcome = idle(lab, results, &echo);
    results.settle(&["QP10-idle"], outcome);
    lab.end_jobs();
    lab.stop_daemon()?;
    start(lab, NEWEST, QUEUE_PAIRS, &echo.files)?;
    lone(lab, results, &echo)
}

/// Measures the fabric's CPU time without and with idle connections.
fn idle(lab: &mut Lab, results: &mut Results, echo: &Echo) -> Measured<()> {
    echo.start(lab, &[Way::Rings])?;
    let seconds = lab.pick(20, 10);
    let before = fabric_percent(lab, seconds)?;
    let idle = echo.open_idle(lab, Way::Rings, [CONNECTIONS, 2 * seconds])?;
    let attached = lab.vm_show("a")?.number("status.vmci.counters.attached")?;
    let percent = fabric_percent(lab, seconds)?;
    let answered = idle.answered(lab)?;
    let detail = format!("for {seconds} s; {} % without connections", shown(before));
    results.record("QP10-idle", [percent, answered, attached], detail);
    Ok(())
}

/// CPU time of the fabric in percent of one CPU, for so many seconds after a moment of rest.
fn fabric_percent(lab: &mut Lab, seconds: u32) -> Measured<f64> {
    let fabric = lab.fabric_pid()?;
    lab.sleep(3.0)?;
    let (from, before) = (lab.now(), lab.cpu_ns(fabric)?);
    lab.sleep(f64::from(seconds))?;
    let used = lab.cpu_ns(fabric)? - before;
    Ok(used / 1e7 / lab.now().saturating_sub(from).as_secs_f64())
}

/// Measures messages after a second of silence each.
fn lone(lab: &mut Lab, results: &mut Results, echo: &Echo) -> Measured<()> {
    echo.start(lab, &[Way::Tcp, Way::Rings])?;
    let (rounds, messages) = lab.pick((5, 100), (2, 5));
    let cells = ["tcp", "rings"];
    let talk = Talk { size: 64, rounds: messages, pause: 1.0 };
    let measured = Latencies::take(lab, rounds, &cells, |lab, way| echo.latency(lab, way, talk))?;
    let values = [measured.of_tcp("rings", "p99_us")?, measured.of_tcp("rings", "p50_us")?];
    let detail = format!("{messages} messages a round; {}", measured.listed(&cells)?);
    results.record("QP10-lone", values, detail);
    Ok(())
}
