//! Draws a report: percentile curves of latencies, or bars of throughput.

use plotters::prelude::*;

use super::picture::{self, Area, COLOURS, FAINT, Failure, INK, PictureError, columns, curve, text};
use super::{Kind, Report, table};

/// Width and height in pixels.
pub(super) const SIZE: (u32, u32) = (960, 540);

pub(super) fn render(report: &Report) -> Result<String, PictureError> {
    picture::svg(SIZE, |area| draw(area, report))
}

fn draw(area: &Area<'_>, report: &Report) -> Result<(), Failure> {
    let (head, rest) = area.split_vertically(62);
    let (body, foot) = rest.split_vertically(SIZE.1 - 62 - 54);
    let names: Vec<_> = report.configurations().map(|c| c.name.as_str()).collect();
    let title = format!("{} {}", report.kind.name(), names.join(" and "));
    head.draw_text(&title, &text(26, INK), (24, 18))?;
    head.draw_text(&table::settings(report.kind, &report.settings), &text(18, FAINT), (24, 44))?;
    match report.kind {
        Kind::Ping | Kind::Rr => curve::draw(&body, &report.named().collect::<Vec<_>>())?,
        Kind::Stream => bars(&body, report)?,
    }
    if let Some(comparison) = &report.comparison {
        foot.draw_text(&comparison.to_string(), &text(18, INK), (24, 10))?;
    }
    foot.draw_text(&report.host.to_string(), &text(15, FAINT), (24, 34))
}

/// Draws the median of each configuration as a bar, and each repeat as a dot.
fn bars(area: &Area<'_>, report: &Report) -> Result<(), Failure> {
    let bars: Vec<_> = report.configurations().collect();
    let every = bars.iter().flat_map(|bar| &bar.repeats).filter_map(|figures| figures.mbit_s);
    let top = every.fold(1.0, f64::max) * 1.15;
    let names: Vec<_> = report.named().map(|(name, _)| name).collect();
    let mut chart = columns::chart(area, names.into_iter(), top, "Mbit/s")?;
    for (index, (bar, colour)) in bars.iter().zip(COLOURS).enumerate() {
        let middle = index as f64 + 0.5;
        let height = bar.median.mbit_s.unwrap_or(0.0);
        columns::bar(&mut chart, (middle - 0.2, middle + 0.2), height, colour.mix(0.75))?;
        let highest = bar.repeats.iter().filter_map(|figures| figures.mbit_s).fold(height, f64::max);
        let figure = format!("{height:.0} Mbit/s");
        columns::label(&mut chart, figure, (middle, highest + top * 0.02), 20)?;
        if bar.repeats.len() > 1 {
            let count = bar.repeats.len() as f64;
            let dots = bar.repeats.iter().enumerate().filter_map(|(repeat, figures)| {
                let x = middle - 0.15 + 0.3 * (repeat as f64 + 0.5) / count;
                figures.mbit_s.map(|y| Circle::new((x, y), 4, INK.filled()))
            });
            chart.draw_series(dots)?;
        }
    }
    Ok(())
}
