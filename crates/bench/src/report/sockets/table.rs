//! Formats the results as aligned text.

use super::{Figures, SocketMode, SocketResults, size};
use crate::report::table::{aligned, counted, end_point, micros};

pub(super) fn render(results: &SocketResults) -> String {
    let mut text = match results.mode {
        SocketMode::Stream => streams(results),
        SocketMode::Rr => lines(&latencies(results)),
    };
    let unit = match results.mode {
        SocketMode::Stream => "payload received in Mbit/s, 1 Mbit = 10⁶ bit; fairness (Σx)²/(n·Σx²)",
        SocketMode::Rr => "µs; CPU in percent of one CPU",
    };
    let repeats = results.cells.iter().map(|cell| cell.repeats.len()).max().unwrap_or(0);
    let (from, to) = (end_point(&results.sender), end_point(&results.receiver));
    text += &format!("\nunits     {unit}\n");
    text += &format!("measured  {} s, {}\n", results.duration_s, counted(repeats as u32, "repeat"));
    text += &format!("between   {from} → {to}\n");
    text + &format!("on        {}\n", results.host)
}

fn lines(rows: &[Vec<String>]) -> String {
    aligned(rows).collect()
}

/// Formats throughput by message size, and fairness if there were several sessions.
fn streams(results: &SocketResults) -> String {
    let messages = results.values(|cell| cell.message);
    let mut head = vec!["OVER".to_owned(), "SOCKET".to_owned(), "SESSIONS".to_owned()];
    head.extend(messages.iter().map(|message| size(*message)));
    head.push("FAIRNESS".to_owned());
    let mut rows = vec![head];
    for sessions in results.values(|cell| cell.sessions) {
        for series in results.series() {
            let found: Vec<_> =
                messages.iter().map(|message| results.median(series, *message, sessions)).collect();
            let rate = |figures: Option<&Figures>| figures.and_then(|figures| figures.mbit_s);
            let fairness = found.iter().flatten().filter_map(|figures| figures.fairness).reduce(f64::min);
            let mut row = vec![series.0.to_string(), size(series.1), sessions.to_string()];
            row.extend(found.iter().map(|figures| shown(rate(*figures), |rate| format!("{rate:.0}"))));
            row.push(shown(fairness, |fairness| format!("{fairness:.3}")));
            rows.push(row);
        }
    }
    lines(&rows)
}

/// Returns a row for each cell.
fn latencies(results: &SocketResults) -> Vec<Vec<String>> {
    let head = ["OVER", "SOCKET", "MESSAGE", "P50", "P90", "P99", "P99.9", "P99.99", "PER SECOND", "HOST %"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for message in results.values(|cell| cell.message) {
        for series in results.series() {
            let Some(figures) = results.median(series, message, 1) else { continue };
            let mut row = vec![series.0.to_string(), size(series.1), size(message)];
            let quantiles =
                [figures.p50_us, figures.p90_us, figures.p99_us, figures.p99_9_us, figures.p99_99_us];
            row.extend(quantiles.map(|quantile| shown(quantile, micros)));
            row.extend([figures.per_s, figures.cpu.host].map(|n| shown(n, |n| format!("{n:.0}"))));
            rows.push(row);
        }
    }
    rows
}

fn shown(value: Option<f64>, show: impl Fn(f64) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), show)
}
