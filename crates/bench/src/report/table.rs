//! Formats a report as aligned text.

use super::{Configuration, EndPoint, Figures, Kind, Report, Settings};

/// A column: its header, and the cell for a repeat.
type Column = (&'static str, fn(&Figures) -> Option<String>);

const COLUMNS: [Column; 14] = [
    ("P50", |f| f.p50_us.map(micros)),
    ("P90", |f| f.p90_us.map(micros)),
    ("P99", |f| f.p99_us.map(micros)),
    ("P99.9", |f| f.p99_9_us.map(micros)),
    ("P99.99", |f| f.p99_99_us.map(micros)),
    ("COUNT", |f| f.count.map(|n| n.to_string())),
    ("LOST", |f| f.lost.map(|n| n.to_string())),
    ("PER SECOND", |f| f.per_s.map(|n| format!("{n:.0}"))),
    ("MBIT/S", |f| f.mbit_s.map(|n| format!("{n:.0}"))),
    ("FAIRNESS", |f| f.fairness.map(|n| format!("{n:.3}"))),
    ("SENDER %", |f| f.cpu.sender.map(|n| format!("{n:.0}"))),
    ("RECEIVER %", |f| f.cpu.receiver.map(|n| format!("{n:.0}"))),
    ("FABRIC %", |f| f.cpu.fabric.map(|n| format!("{n:.0}"))),
    ("HOST %", |f| f.cpu.host.map(|n| format!("{n:.0}"))),
];

pub(super) fn micros(value: f64) -> String {
    if value < 1000.0 { format!("{value:.1}") } else { format!("{value:.0}") }
}

pub(super) fn render(report: &Report) -> String {
    let mut text = String::new();
    for row in aligned(&rows(report)) {
        text += &row;
    }
    if let Some(comparison) = &report.comparison {
        text += &format!("\n{comparison}\n");
    }
    text += "\n";
    let unit = match report.kind {
        Kind::Ping | Kind::Rr => "µs; CPU in percent of one CPU",
        Kind::Stream => "payload received, 1 Mbit = 10⁶ bit; CPU in percent of one CPU",
    };
    text += &format!("units     {unit}\n");
    text += &format!("measured  {}\n", settings(report.kind, &report.settings));
    for configuration in report.configurations() {
        let (from, to) = (end_point(&configuration.sender), end_point(&configuration.receiver));
        text += &format!("between   {from} → {to}\n");
    }
    text += &format!("on        {}\n", report.host);
    text
}

/// Returns the header, then for each configuration a row for each repeat and one for the median of
/// several.
fn rows(report: &Report) -> Vec<Vec<String>> {
    let medians: Vec<_> = report.configurations().map(|c| &c.median).collect();
    let used: Vec<_> =
        COLUMNS.iter().filter(|(_, of)| medians.iter().any(|figures| of(figures).is_some())).collect();
    let row = |name: String, repeat: &str, figures: &Figures| {
        let cells = used.iter().map(|(_, of)| of(figures).unwrap_or_else(|| "-".to_owned()));
        [name, repeat.to_owned()].into_iter().chain(cells).collect::<Vec<_>>()
    };
    let head = [report.kind.name().to_uppercase(), "REPEAT".to_owned()];
    let mut rows = vec![head.into_iter().chain(used.iter().map(|(head, _)| (*head).to_owned())).collect()];
    for (name, Configuration { repeats, median, .. }) in report.named() {
        for (index, figures) in repeats.iter().enumerate() {
            let name = if index == 0 { name.clone() } else { String::new() };
            rows.push(row(name, &(index + 1).to_string(), figures));
        }
        if repeats.len() > 1 {
            rows.push(row(String::new(), "median", median));
        }
    }
    rows
}

/// Pads each column to its widest cell. The first column is left-aligned, the others right-aligned.
pub(super) fn aligned(rows: &[Vec<String>]) -> impl Iterator<Item = String> {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<_> = (0..columns).map(width).collect();
    rows.iter().map(move |row| {
        let cells = row.iter().zip(&widths).enumerate().map(|(index, (cell, &width))| {
            if index == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        format!("{}\n", cells.collect::<Vec<_>>().join("  "))
    })
}

/// Formats the settings as one line.
pub(super) fn settings(kind: Kind, settings: &Settings) -> String {
    let mut text = kind.name().to_owned();
    if let Some(size) = settings.size {
        text += &format!(", {size} B");
    }
    if let Some(interval) = settings.interval_us {
        text += &match interval % 1000 {
            0 => format!(" every {} ms", interval / 1000),
            _ => format!(" every {interval} µs"),
        };
    }
    if let Some(pattern) = &settings.pattern {
        text += &format!(", pattern {pattern}");
    }
    let sizes =
        [("socket", settings.socket_size), ("send", settings.send_size), ("receive", settings.receive_size)];
    for (what, size) in sizes {
        if let Some(size) = size {
            text += &format!(", {what} {size} B");
        }
    }
    if let Some(sessions) = settings.sessions {
        text += &format!(", {}", counted(sessions, "session"));
    }
    text + &format!(", {} s, {}", settings.duration_s, counted(settings.repeats, "repeat"))
}

pub(super) fn counted(number: u32, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

pub(super) fn end_point(end: &EndPoint) -> String {
    let system = if end.kind == "micro" { end.kernel.clone() } else { format!("Linux {}", end.kernel) };
    let about = [
        Some(end.kind.clone()),
        Some(system),
        end.accelerator.clone(),
        end.address.as_ref().map(ToString::to_string),
    ];
    let about: Vec<_> = about.into_iter().flatten().collect();
    format!("{} ({})", end.name, about.join(", "))
}
