//! SK3: two Debian guests: loss, and speed beside TAP and a Linux bridge, in alternation.

use crate::figure::{Bound, shown};
use crate::lab::{Lab, Twin};
use crate::machine::{Command, Doc};
use crate::reason::Measured;
use crate::rival::Rival;
use crate::rounds::versus;
use crate::row::{Goal, Results, Row};

const BRIDGE: &[Rival] = &[Rival::LinuxBridge];

pub(super) const ROW: Row = Row {
    id: "SK3",
    what: "loss, and speed beside TAP and a Linux bridge",
    on: "two QEMU guests with Debian's kernels",
    goals: &[
        Goal::new("SK3-ping", &[Bound::Exactly(0.0, "lost")]),
        Goal::beside("SK3-stream-auto", &[Bound::AtLeast(1.0, "x")], BRIDGE),
        Goal::beside("SK3-stream-bulk", &[Bound::AtLeast(1.0, "x")], BRIDGE),
        Goal::beside("SK3-rr", &[Bound::AtMost(1.0, "x p50")], BRIDGE),
        Goal::new("SK3-netns", &[Bound::Exactly(0.0, "% lost")]),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let seconds = lab.pick(60, 10);
    lab.two_guests()?;
    let ping = lab.bench(format!("ping alpha beta --duration {seconds}"))?;
    let sent = ping.sum("a.repeats", "count")?;
    results.record("SK3-ping", [ping.sum("a.repeats", "lost")?], format!("{} answered", shown(sent)));

    let twins = lab.bridge_twins(&["alpha", "beta"])?;
    lab.until_twins_answer(&twins)?;
    for (goal, bench) in [
        ("SK3-stream-auto", "stream --pattern auto"),
        ("SK3-stream-bulk", "stream --pattern bulk"),
        ("SK3-rr", "rr"),
    ] {
        let outcome = beside_bridge(lab, results, goal, bench, &twins);
        results.settle(&[goal], outcome);
    }
    lab.end_jobs();

    lab.netns("goal-ns", "lan", "10.80.0.9")?;
    let count = seconds * 20;
    let words = format!("-q -n -i 0.01 -c {count} 10.80.0.1");
    let ping = Command::new("ping").args(words).in_namespace("goal-ns").record("ping");
    let text = lab.run(&ping)?.stdout;
    let lost = text.number_between("received, ", "% packet loss")?;
    results.record("SK3-netns", [lost], format!("ping of Linux, {count} requests"));
    Ok(())
}

fn beside_bridge(
    lab: &mut Lab,
    results: &mut Results,
    goal: &str,
    bench: &str,
    twins: &[Twin],
) -> Measured<()> {
    let (kind, options) = bench.split_once(' ').unwrap_or((bench, ""));
    let (each, repeats) = lab.pick((4, 7), (3, 3));
    let rival: Vec<String> = twins.iter().map(Twin::end_point).collect();
    let rival = rival.join(" ");
    let words = format!("{kind} alpha beta --versus {rival} {options} --duration {each} --repeat {repeats}");
    let report = lab.bench(words)?;
    let figure = if kind == "rr" { "p50_us" } else { "mbit_s" };
    let detail = beside(&report, figure)?;
    results.record(goal, [versus(&report, figure)?], detail);
    Ok(())
}

/// Writes the medians of both sides of a report.
fn beside(report: &Doc, figure: &str) -> Measured<String> {
    let unit = if figure.ends_with("_us") { "µs" } else { "Mbit/s" };
    let own = report.number(&format!("a.median.{figure}"))?.round();
    let rival = report.number(&format!("b.median.{figure}"))?.round();
    Ok(format!("{} {unit}, bridge {}", shown(own), shown(rival)))
}
