//! DP12: costs and savings of each moderation scheme at each load. The fabric has its default mode
//! (adaptive) on CPU 0; CPU 1 sends and takes interrupts.

use crate::figure::{Bound, Value, shown};
use crate::lab::{DaemonOptions, Lab};
use crate::machine::Doc;
use crate::reason::{Measured, require};
use crate::row::{Goal, Results, Row};

const LONE: &[Bound] = &[Bound::AtMost(50.0, "µs p50 behind `disabled`")];
const RATE: &[Bound] = &[Bound::AtMost(4200.0, "interrupts/s")];

pub(super) const ROW: Row = Row {
    id: "DP12",
    what: "moderation of interrupts: a lone frame, rates, loss",
    on: "the fabric in its default mode on CPU 0, the load on CPU 1",
    goals: &[
        Goal::new("DP12-lone-rbc", LONE),
        Goal::new("DP12-lone-adapt", LONE),
        Goal::new("DP12-lone-static", &[Bound::AtMost(4000.0, "µs p99 behind `disabled`")]),
        Goal::new("DP12-rate-10k", RATE),
        Goal::new("DP12-rate-100k", RATE),
        Goal::new("DP12-loss", &[Bound::Exactly(0.0, "lost")]),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    lab.start_lan(DaemonOptions::default().args("--fabric-cpus 0").preferred())?;
    let length = lab.pick("--duration 2 --repeat 3", "--duration 0.6");
    let bench = lab.bench_command(format!("moderation --portgroup lan --cpu 1 {length}"));
    let report = lab.bench_by(&bench.preferred())?;
    let disabled = cell(&report, "disabled", "100", "p50_us")?;
    for (goal, scheme) in [("DP12-lone-rbc", "rbc:4000"), ("DP12-lone-adapt", "adapt")] {
        let own = cell(&report, scheme, "100", "p50_us")?;
        let detail = format!("{} µs, disabled {} µs", shown(own.value), shown(disabled.value));
        results.record(goal, [own.value - disabled.value], detail);
    }
    let own = cell(&report, "static:64", "100", "p99_us")?;
    let disabled = cell(&report, "disabled", "100", "p99_us")?;
    results.record("DP12-lone-static", [own.value - disabled.value], format!("{} µs", shown(own.value)));
    for (goal, rate) in [("DP12-rate-10k", "10000"), ("DP12-rate-100k", "100000")] {
        let without = cell(&report, "disabled", rate, "interrupts_per_s")?;
        let own = cell(&report, "rbc:4000", rate, "interrupts_per_s")?;
        results.record(goal, [own], format!("disabled {}/s", shown(without.value.round())));
    }
    results.record("DP12-loss", [report.sum("cells", "lost")?], "");
    Ok(())
}

/// Median of a figure over the repeats of a scheme at a rate.
fn cell(report: &Doc, scheme: &str, rate: &str, figure: &str) -> Measured<Value> {
    let cells = report.list("cells")?;
    let cells: Vec<&Doc> =
        cells.iter().filter(|cell| cell.matches(&[("scheme", scheme), ("rate", rate)])).collect();
    require(!cells.is_empty(), format!("{scheme} was not measured at {rate} frames/s"))?;
    let figures: Measured<Vec<f64>> = cells.iter().map(|cell| cell.number(figure)).collect();
    Value::median(&figures?)
}
