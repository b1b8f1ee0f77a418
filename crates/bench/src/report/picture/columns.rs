//! Charts of bars in named groups.

use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use super::axis::Axis;
use super::{Area, FAINT, Failure, GRID, INK};

/// A chart on which bars are drawn. Group `n` is in the middle of `n..n + 1`; values start at 0.
pub(in crate::report) type Columns<'a, 'b> =
    ChartContext<'b, SVGBackend<'a>, Cartesian2d<Axis, RangedCoordf64>>;

/// Draws the axes of a chart: one group for each name, and values up to `top` in `unit`.
pub(in crate::report) fn chart<'a, 'b>(
    area: &'b Area<'a>,
    groups: impl ExactSizeIterator<Item = String>,
    top: f64,
    unit: &str,
) -> Result<Columns<'a, 'b>, Failure> {
    let high = groups.len() as f64;
    let ticks = groups.enumerate().map(|(group, name)| (group as f64 + 0.5, name)).collect();
    let mut chart = ChartBuilder::on(area)
        .margin_left(8)
        .margin_right(24)
        .x_label_area_size(36)
        .y_label_area_size(74)
        .build_cartesian_2d(Axis { low: 0.0, high, ticks }, 0.0..top)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(FAINT)
        .y_labels(6)
        .y_desc(unit)
        .label_style(("sans-serif", 17).into_font().color(&INK))
        .draw()?;
    Ok(chart)
}

/// Draws a bar from `left` to `right` with a figure above it, at height `at`.
pub(in crate::report) fn bar(
    chart: &mut Columns<'_, '_>,
    (left, right): (f64, f64),
    value: f64,
    colour: impl Into<ShapeStyle>,
) -> Result<(), Failure> {
    let bar = Rectangle::new([(left, 0.0), (right, value)], colour.into().filled());
    chart.draw_series([bar])?;
    Ok(())
}

/// Draws a figure above the point `at`.
pub(in crate::report) fn label(
    chart: &mut Columns<'_, '_>,
    figure: String,
    at: (f64, f64),
    size: i32,
) -> Result<(), Failure> {
    chart.draw_series([Text::new(figure, at, super::figure(size))])?;
    Ok(())
}
