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
                Bound::AtLeast(1000.0, "attached ends at each guest"),
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
    let before_rest = attached_ends(lab)?;
    let percent = fabric_percent(lab, seconds)?;
    // All of them are attached from the begin of the rest to its end.
    let attached = before_rest.min(attached_ends(lab)?);
    let answered = idle.answered(lab)?;
    let detail = format!("for {seconds} s; {} % without connections", shown(before));
    results.record("QP10-idle", [percent, answered, attached], detail);
    Ok(())
}

/// Number of ends that are attached now, at the guest that has fewer of them.
fn attached_ends(lab: &mut Lab) -> Measured<f64> {
    let mut of = |guest: &str| lab.vm_show(guest)?.number("status.vmci.counters.attached");
    Ok(of("a")?.min(of("b")?))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::{Verdict, judge};

    #[test]
    fn connections_that_go_by_packets_do_not_meet_the_goal() {
        let judged = |attached: f64| judge(ROW.goals[0].bounds, &[0.01, 1000.0, attached].map(Into::into));
        assert_eq!([0.0, 999.0, 1000.0].map(judged), [Verdict::Missed, Verdict::Missed, Verdict::Met]);
    }
}
