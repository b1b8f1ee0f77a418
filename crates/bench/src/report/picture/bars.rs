//! Bars of throughput: the median of each configuration, and a dot for each repeat.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::axis::Axis;
use super::{Area, COLOURS, FAINT, Failure, GRID, INK};
use crate::report::Report;

pub(super) fn draw(area: &Area<'_>, report: &Report) -> Result<(), Failure> {
    let bars: Vec<_> = report.configurations().collect();
    let every = bars.iter().flat_map(|bar| &bar.repeats).filter_map(|figures| figures.mbit_s);
    let top = every.fold(1.0, f64::max) * 1.15;
    let names = report.named().enumerate().map(|(index, (name, _))| (index as f64 + 0.5, name));
    let x = Axis { low: 0.0, high: bars.len() as f64, ticks: names.collect() };
    let mut chart = ChartBuilder::on(area)
        .margin_left(8)
        .margin_right(40)
        .x_label_area_size(36)
        .y_label_area_size(74)
        .build_cartesian_2d(x, 0.0..top)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(FAINT)
        .y_labels(6)
        .y_desc("Mbit/s")
        .label_style(("sans-serif", 17).into_font().color(&INK))
        .y_label_formatter(&|y| format!("{y:.0}"))
        .draw()?;
    let label = |size| ("sans-serif", size).into_font().color(&INK).pos(Pos::new(HPos::Center, VPos::Bottom));
    for (index, (bar, colour)) in bars.iter().zip(COLOURS).enumerate() {
        let middle = index as f64 + 0.5;
        let height = bar.median.mbit_s.unwrap_or(0.0);
        let corners = [(middle - 0.2, 0.0), (middle + 0.2, height)];
        chart.draw_series([Rectangle::new(corners, colour.mix(0.75).filled())])?;
        let highest = bar.repeats.iter().filter_map(|figures| figures.mbit_s).fold(height, f64::max);
        chart.draw_series([Text::new(
            format!("{height:.0} Mbit/s"),
            (middle, highest + top * 0.02),
            label(20),
        )])?;
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
