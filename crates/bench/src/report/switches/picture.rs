//! Draws throughput by frame size: groups of bars, one for each switch.

use super::page::SWITCHES;
use super::{Cores, Generator, Kind, SwitchResults};
use crate::load::Mode;
use crate::report::picture::{
    self, AMBER, Area, BLUE, Failure, GREY, INK, ORANGE, PictureError, columns, legend, text,
};

const SIZE: (u32, u32) = (960, 480);
/// In the order of [`SWITCHES`].
const COLOURS: [plotters::style::RGBColor; 4] = [BLUE, ORANGE, AMBER, GREY];
/// Sizes in bytes.
const FRAME_SIZES: [u32; 3] = [64, 256, 1518];

pub(super) fn render(results: &SwitchResults) -> Result<String, PictureError> {
    picture::svg(SIZE, |area| draw(area, results))
}

fn draw(area: &Area<'_>, results: &SwitchResults) -> Result<(), Failure> {
    let count = |cores| results.samples.iter().filter(|sample| sample.state == cores).count();
    let cores = if count(Cores::Near) >= count(Cores::Far) { Cores::Near } else { Cores::Far };
    let light = results.samples.iter().any(|sample| sample.generator == Generator::Lgen);
    let generator = if light { Generator::Lgen } else { Generator::Taut };
    let (mode, prepared) = (Mode::OneWay, 0);
    let kind = |size| Kind { generator, mode, packed: false, touch: false, flows: 1, prepared, size };
    let rate = |size, column: usize| {
        let figure = results.figure(&kind(size), SWITCHES[column].0, cores, &|s| s.figures.mpps);
        figure.map(|figure| figure.median)
    };
    let bars: Vec<(usize, usize, f64)> = FRAME_SIZES
        .iter()
        .enumerate()
        .flat_map(|(group, &size)| (0..COLOURS.len()).map(move |column| (group, column, size)))
        .filter_map(|(group, column, size)| Some((group, column, rate(size, column)?)))
        .collect();
    let top = bars.iter().map(|(.., rate)| *rate).fold(1.0, f64::max) * 1.12;

    let (head, body) = area.split_vertically(80);
    let title = format!("One way, split rings, one switch core, cores {cores} ({generator})");
    head.draw_text(&title, &text(22, INK), (24, 14))?;
    for ((column, colour), left) in COLOURS.iter().enumerate().zip((30..).step_by(220)) {
        legend(&head, (left, 48), &SWITCHES[column].1.replace('`', ""), colour)?;
    }
    let groups = FRAME_SIZES.iter().map(|size| format!("{size} B"));
    let mut chart = columns::chart(&body, groups, top, "Mpps")?;
    let width = 0.8 / COLOURS.len() as f64;
    for &(group, column, rate) in &bars {
        let left = group as f64 + 0.1 + width * column as f64;
        columns::bar(&mut chart, (left, left + width * 0.9), rate, COLOURS[column])?;
        let middle = left + width * 0.45;
        columns::label(&mut chart, format!("{rate:.1}"), (middle, rate + top * 0.01), 15)?;
    }
    Ok(())
}
