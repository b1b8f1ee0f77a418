//! Formats the results as aligned text.

use super::{Beside, ConditionResults, Experiment, Figures};
use crate::report::table::{aligned, counted, end_point, micros};

/// A column: its header, and the cell for a repeat.
type Column = (&'static str, fn(&Shown<'_>) -> Option<String>);

/// A repeat, or the median of all.
struct Shown<'a> {
    figures: &'a Figures,
    beside: Beside,
    kept: Option<f64>,
}

const COLUMNS: [Column; 12] = [
    ("P50", |s| s.figures.p50_us.map(micros)),
    ("P90", |s| s.figures.p90_us.map(micros)),
    ("P99", |s| s.figures.p99_us.map(micros)),
    ("P99.9", |s| s.figures.p99_9_us.map(micros)),
    ("P99.99", |s| s.figures.p99_99_us.map(micros)),
    ("PER SECOND", |s| s.figures.per_s.map(|n| format!("{n:.0}"))),
    ("RDY %", |s| s.beside.ready_percent.map(|n| format!("{n:.3}"))),
    ("NEIGHBOURS/S", |s| s.beside.work_per_s.map(|n| format!("{n:.0}"))),
    ("KEPT %", |s| s.kept.map(|n| format!("{n:.1}"))),
    ("THEIR RDY %", |s| s.beside.neighbours_ready_percent.map(|n| format!("{n:.1}"))),
    ("FABRIC %", |s| s.figures.cpu.fabric.map(|n| format!("{n:.0}"))),
    ("HOST %", |s| s.figures.cpu.host.map(|n| format!("{n:.0}"))),
];

pub(super) fn render(results: &ConditionResults) -> String {
    let mut text: String = aligned(&rows(results)).collect();
    text += "\n";
    for line in results.summary() {
        text += &format!("{line}\n");
    }
    text += "\n";
    let unit = match results.experiment {
        Experiment::Neighbours => {
            "µs; CPU and %RDY in percent of one CPU; work in units of 10,000 dependent integer operations"
        }
        Experiment::Puts => "µs; CPU and %RDY in percent of one CPU",
    };
    text += &format!("units       {unit}\n");
    let repeats = results.conditions.iter().map(|condition| condition.beside.len()).max().unwrap_or(0);
    text += &format!("measured    {}, {}\n", results.settings(), counted(repeats as u32, "repeat"));
    for condition in &results.conditions {
        let (from, to) =
            (end_point(&condition.configuration.sender), end_point(&condition.configuration.receiver));
        text += &format!("{:<10}  {}: {from} → {to}\n", condition.name, condition.meaning);
    }
    if !results.neighbours.is_empty() {
        let named: Vec<_> = results.neighbours.iter().map(end_point).collect();
        text += &format!("beside      {}\n", named.join(", "));
    }
    text + &format!("on          {}\n", results.host)
}

/// Returns the header, then for each condition a row for each repeat and one for the median of
/// several.
fn rows(results: &ConditionResults) -> Vec<Vec<String>> {
    let medians: Vec<_> = results
        .conditions
        .iter()
        .map(|condition| shown(results, &condition.configuration.median, condition.median_beside()))
        .collect();
    let used: Vec<_> =
        COLUMNS.iter().filter(|(_, of)| medians.iter().any(|shown| of(shown).is_some())).collect();
    let row = |name: &str, repeat: &str, shown: &Shown<'_>| {
        let cells = used.iter().map(|(_, of)| of(shown).unwrap_or_else(|| "-".to_owned()));
        [name, repeat].map(str::to_owned).into_iter().chain(cells).collect::<Vec<_>>()
    };
    let head = ["CONDITION", "REPEAT"].map(str::to_owned);
    let mut rows = vec![head.into_iter().chain(used.iter().map(|(head, _)| (*head).to_owned())).collect()];
    for (condition, median) in results.conditions.iter().zip(&medians) {
        let repeats = condition.configuration.repeats.iter().zip(&condition.beside);
        for (index, (figures, beside)) in repeats.enumerate() {
            let name = if index == 0 { condition.name.as_str() } else { "" };
            rows.push(row(name, &(index + 1).to_string(), &shown(results, figures, *beside)));
        }
        if condition.beside.len() > 1 {
            rows.push(row("", "median", median));
        }
    }
    rows
}

fn shown<'a>(results: &ConditionResults, figures: &'a Figures, beside: Beside) -> Shown<'a> {
    Shown { figures, beside, kept: results.kept_percent(beside) }
}
