//! QP10: connections that do nothing, and one message after a second of silence, between Python
//! programs with the preload library through queue pairs.

use super::programs::echo::{Echo, Talk};
use super::programs::latency::Latencies;
use super::programs::{QUEUE_PAIRS, Way, start};
use crate::figure::{Bound, Value, shown};
use crate::lab::{Lab, NEWEST};
use crate::reason::{Measured, require};
use crate::row::{Goal, Results, Row};

/// Connections that do nothing.
const CONNECTIONS: u32 = 1000;
/// Seconds between the last action and the begin of a measurement.
const REST: u32 = 3;
/// Most that the connections may cost, in % of a CPU.
const MOST: f64 = 0.1;
/// Memory for queue pairs that suffices for all [`CONNECTIONS`].
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
                Bound::Below(MOST, "% of a CPU that the fabric uses more with the connections than without"),
                Bound::Exactly(1000.0, "connections that answer afterwards"),
                Bound::AtLeast(1000.0, "attached ends at each guest"),
                Bound::Below(1.0, "% of a CPU of the fabric with the connections"),
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

/// Measures the fabric's CPU time with idle connections, and without them before and after, in
/// turn.
///
/// The difference is the cost of the connections. The fabric also handles a few frames of idle
/// Linux guests, and the daemon's requests. Their CPU time drifts, so each time with connections is
/// compared with the mean of the two times beside it.
fn idle(lab: &mut Lab, results: &mut Results, echo: &Echo) -> Measured<()> {
    echo.start(lab, &[Way::Rings])?;
    let (rounds, seconds) = lab.pick((9, 15), (1, 5));
    let rested = |lab: &mut Lab| fabric_percent(lab, seconds);
    // The first connections pay for what is made only once. They are opened and closed here, so
    // that all times without connections are alike.
    echo.open_idle(lab, Way::Rings, [CONNECTIONS, 1])?.answered(lab)?;
    until_detached(lab)?;
    // Longer than a measurement, with room for the counters that are read before and after.
    let hold = REST + 2 * seconds;
    let (mut without, mut with) = (vec![rested(lab)?], Vec::new());
    let (mut answered, mut attached) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..rounds {
        let idle = echo.open_idle(lab, Way::Rings, [CONNECTIONS, hold])?;
        // All of them are attached before and after the measurement.
        attached = attached.min(attached_ends(lab)?);
        with.push(rested(lab)?);
        attached = attached.min(attached_ends(lab)?);
        answered = answered.min(idle.answered(lab)?);
        until_detached(lab)?;
        without.push(rested(lab)?);
    }
    let more = more_than_beside(&with, &without);
    let listed =
        |percents: &[f64]| percents.iter().map(|&percent| shown(percent)).collect::<Vec<_>>().join(", ");
    let detail = format!(
        "{seconds} s each; with connections {} %; without, before, between and after them {} %",
        listed(&with),
        listed(&without)
    );
    let of_connections = Value::median(&more)?;
    // The interval that contains the median lies on one side of the bound.
    let is_decided =
        of_connections.interval.is_none_or(|interval| interval.high < MOST || interval.low >= MOST);
    require(is_decided, format!("the differences vary too much: {} %; {detail}", listed(&more)))?;
    let values = [of_connections, Value::of(answered), Value::of(attached), Value::median(&with)?];
    results.record("QP10-idle", values, detail);
    Ok(())
}

/// How much greater each of `with` is than the mean of the two of `without` that were measured
/// before and after it.
fn more_than_beside(with: &[f64], without: &[f64]) -> Vec<f64> {
    with.iter().zip(without.windows(2)).map(|(with, beside)| with - beside[0].midpoint(beside[1])).collect()
}

/// Waits until no end is attached any more at either guest.
fn until_detached(lab: &mut Lab) -> Measured<()> {
    lab.until("no connection is attached", 60, |lab| {
        if lab.machine().takes_for_granted() {
            return Ok(true);
        }
        let mut of = |guest: &str| lab.vm_show(guest)?.number("status.vmci.counters.attached");
        Ok(of("a")?.max(of("b")?) < 1.0)
    })
}

/// Number of ends that are attached now, at the guest that has fewer of them.
fn attached_ends(lab: &mut Lab) -> Measured<f64> {
    let mut of = |guest: &str| lab.vm_show(guest)?.number("status.vmci.counters.attached");
    Ok(of("a")?.min(of("b")?))
}

/// CPU time of the fabric in percent of one CPU, for so many seconds after a moment of rest.
fn fabric_percent(lab: &mut Lab, seconds: u32) -> Measured<f64> {
    let fabric = lab.fabric_pid()?;
    lab.sleep(REST.into())?;
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
    fn a_drift_does_not_count_as_the_cost_of_connections() {
        let more = more_than_beside(&[0.25, 0.40], &[0.1, 0.2, 0.4]);
        assert!(more.iter().all(|more| (more - 0.1).abs() < 1e-9), "{more:?}");
    }

    #[test]
    fn connections_that_go_by_packets_do_not_meet_the_goal() {
        let judged =
            |attached: f64| judge(ROW.goals[0].bounds, &[0.01, 1000.0, attached, 0.3].map(Into::into));
        assert_eq!([0.0, 999.0, 1000.0].map(judged), [Verdict::Missed, Verdict::Missed, Verdict::Met]);
    }
}
