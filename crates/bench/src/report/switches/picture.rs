//! Bars by frame size, one a switch.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::page::SWITCHES;
use super::{Kind, SwitchResults};
use crate::load::Mode;
use crate::report::PictureError;

const SIZE: (u32, u32) = (960, 480);
/// In the order of [`SWITCHES`]; apart for the colour-blind as well.
const COLOURS: [RGBColor; 4] =
    [RGBColor(0, 95, 175), RGBColor(215, 95, 0), RGBColor(240, 170, 90), RGBColor(130, 130, 130)];
const INK: RGBColor = RGBColor(40, 40, 40);
const FRAME_SIZES: [u32; 3] = [64, 256, 1518];

pub(super) fn render(results: &SwitchResults) -> Result<String, PictureError> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        draw(&area, results).map_err(|error| PictureError(error.to_string()))?;
    }
    Ok(svg)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn draw(area: &Area<'_>, results: &SwitchResults) -> Result<(), DrawingAreaErrorKind<std::io::Error>> {
    let count = |state: &str| results.samples.iter().filter(|sample| sample.state == state).count();
    let state = if count("near") >= count("far") { "near" } else { "far" };
    let generator = if results.samples.iter().any(|s| s.generator == "lgen") { "lgen" } else { "taut" };
    let kind = |size| Kind {
        generator: generator.to_owned(),
        mode: Mode::OneWay as u8,
        packed: false,
        touch: false,
        flows: 1,
        size,
    };
    let rate = |size, column: usize| {
        SWITCHES[column]
            .0
            .iter()
            .find_map(|name| results.median(&kind(size), name, state, |s| s.figures.mpps))
    };
    let bars: Vec<(usize, usize, f64)> = FRAME_SIZES
        .iter()
        .enumerate()
        .flat_map(|(group, &size)| (0..COLOURS.len()).map(move |column| (group, column, size)))
        .filter_map(|(group, column, size)| Some((group, column, rate(size, column)?)))
        .collect();
    let top = bars.iter().map(|(.., rate)| *rate).fold(1.0, f64::max) * 1.12;
    area.fill(&WHITE)?;
    let style = |size: i32, h, v| ("sans-serif", size).into_font().color(&INK).pos(Pos::new(h, v));
    let title = format!("One way, split rings, one switch core, cores {state} ({generator})");
    area.draw_text(&title, &style(22, HPos::Left, VPos::Top), (24, 14))?;
    let mut chart = ChartBuilder::on(area)
        .margin_top(80)
        .margin_left(8)
        .margin_right(24)
        .x_label_area_size(36)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..FRAME_SIZES.len() as f64, 0.0..top)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .disable_x_axis()
        .light_line_style(TRANSPARENT)
        .bold_line_style(RGBColor(222, 222, 222))
        .y_desc("Mpps")
        .label_style(("sans-serif", 16).into_font().color(&INK))
        .draw()?;
    let width = 0.8 / COLOURS.len() as f64;
    for &(group, column, rate) in &bars {
        let left = group as f64 + 0.1 + width * column as f64;
        let corners = [(left, 0.0), (left + width * 0.9, rate)];
        chart.draw_series([Rectangle::new(corners, COLOURS[column].filled())])?;
        let label = style(15, HPos::Center, VPos::Bottom);
        chart.draw_series([Text::new(
            format!("{rate:.1}"),
            (left + width * 0.45, rate + top * 0.01),
            label,
        )])?;
    }
    for (group, size) in FRAME_SIZES.iter().enumerate() {
        let at = chart.backend_coord(&(group as f64 + 0.5, 0.0));
        area.draw_text(&format!("{size} B"), &style(18, HPos::Center, VPos::Top), (at.0, at.1 + 8))?;
    }
    for ((column, colour), x) in COLOURS.iter().enumerate().zip((30..).step_by(220)) {
        area.draw(&Rectangle::new([(x, 50), (x + 14, 64)], colour.filled()))?;
        let name = SWITCHES[column].1.replace('`', "");
        area.draw_text(&name, &style(16, HPos::Left, VPos::Top), (x + 20, 48))?;
    }
    area.present()
}
