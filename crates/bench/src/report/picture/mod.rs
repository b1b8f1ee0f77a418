//! Parts of SVG pictures that all results share: palette, text, legend, charts.

pub(super) mod axis;
pub(super) mod columns;
pub(super) mod curve;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// The drawing library failed: a fault of taut itself.
#[derive(Debug, thiserror::Error)]
#[error("the picture could not be drawn: {0}")]
pub struct PictureError(pub(crate) String);

/// Colours of series, in order; the colour-blind can tell them apart, too.
pub(super) const COLOURS: [RGBColor; 6] = [BLUE, ORANGE, GREEN, PURPLE, AMBER, GREY];
pub(super) const BLUE: RGBColor = RGBColor(0, 95, 175);
pub(super) const ORANGE: RGBColor = RGBColor(215, 95, 0);
pub(super) const GREEN: RGBColor = RGBColor(0, 150, 110);
pub(super) const PURPLE: RGBColor = RGBColor(130, 60, 150);
pub(super) const AMBER: RGBColor = RGBColor(240, 170, 90);
pub(super) const GREY: RGBColor = RGBColor(130, 130, 130);
/// Text and lines that carry a value.
pub(super) const INK: RGBColor = RGBColor(40, 40, 40);
/// Text that explains, and axes.
pub(super) const FAINT: RGBColor = RGBColor(110, 110, 110);
pub(super) const GRID: RGBColor = RGBColor(222, 222, 222);

pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

/// Error of a drawing call.
pub(super) type Failure = DrawingAreaErrorKind<std::io::Error>;

/// Returns an SVG picture of `size` pixels on a white ground.
pub(super) fn svg(
    size: (u32, u32),
    draw: impl FnOnce(&Area<'_>) -> Result<(), Failure>,
) -> Result<String, PictureError> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        let drawn = area.fill(&WHITE).and_then(|()| draw(&area)).and_then(|()| area.present());
        drawn.map_err(|error| PictureError(error.to_string()))?;
    }
    Ok(svg)
}

/// Returns a font of this size in pixels, anchored at its top left.
pub(super) fn text(size: i32, colour: RGBColor) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&colour).pos(Pos::new(HPos::Left, VPos::Top))
}

/// Returns a font for figures above a point: centred, anchored at its bottom.
pub(super) fn figure(size: i32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&INK).pos(Pos::new(HPos::Center, VPos::Bottom))
}

/// Draws one entry of a legend, with its top left corner at `at`.
pub(super) fn legend(
    area: &Area<'_>,
    at: (i32, i32),
    name: &str,
    colour: impl Into<ShapeStyle>,
) -> Result<(), Failure> {
    let (left, top) = at;
    let style = colour.into().filled();
    area.draw(&Rectangle::new([(left, top + 2), (left + 16, top + 14)], style))?;
    area.draw_text(name, &text(17, INK), (left + 24, top))
}
