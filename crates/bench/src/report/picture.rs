//! A report as SVG picture.

pub(super) mod axis;
mod bars;
pub(super) mod curve;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{Kind, Report, table};

/// A picture could not be drawn: a fault of taut itself.
#[derive(Debug, thiserror::Error)]
#[error("the picture could not be drawn: {0}")]
pub struct PictureError(pub(crate) String);

/// Width and height in pixels.
pub(super) const SIZE: (u32, u32) = (960, 540);
/// Colours of A, B and more, apart for the colour-blind as well.
const COLOURS: [RGBColor; 4] =
    [RGBColor(0, 95, 175), RGBColor(215, 95, 0), RGBColor(0, 145, 110), RGBColor(120, 120, 120)];
pub(super) const INK: RGBColor = RGBColor(40, 40, 40);
pub(super) const FAINT: RGBColor = RGBColor(110, 110, 110);
const GRID: RGBColor = RGBColor(222, 222, 222);

pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

pub(super) fn render(report: &Report) -> Result<String, PictureError> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        draw(&area, report).map_err(|error| PictureError(error.to_string()))?;
    }
    Ok(svg)
}

/// What drawing into memory can fail with.
pub(super) type Failure = DrawingAreaErrorKind<std::io::Error>;

fn draw(area: &Area<'_>, report: &Report) -> Result<(), Failure> {
    area.fill(&WHITE)?;
    let (head, rest) = area.split_vertically(62);
    let (body, foot) = rest.split_vertically(SIZE.1 - 62 - 54);
    let names: Vec<_> = report.configurations().map(|c| c.name.as_str()).collect();
    let title = format!("{} {}", report.kind.name(), names.join(" and "));
    head.draw_text(&title, &text(26, INK), (24, 18))?;
    head.draw_text(&table::settings(report.kind, &report.settings), &text(18, FAINT), (24, 44))?;
    match report.kind {
        Kind::Ping | Kind::Rr => curve::draw(&body, &report.named().collect::<Vec<_>>())?,
        Kind::Stream => bars::draw(&body, report)?,
    }
    if let Some(comparison) = &report.comparison {
        foot.draw_text(&comparison.to_string(), &text(18, INK), (24, 10))?;
    }
    foot.draw_text(&report.host.to_string(), &text(15, FAINT), (24, 34))?;
    area.present()
}

/// A font by size and colour, anchored at its top left.
pub(super) fn text(size: i32, colour: RGBColor) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&colour).pos(Pos::new(HPos::Left, VPos::Top))
}
