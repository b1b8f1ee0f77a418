//! A chart for each number of sessions, one below the other: bars by message size, one for each transport and socket size.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{Figures, SocketMode, SocketResults, Transport, size};
use crate::report::PictureError;
use crate::report::picture::axis::Axis;

const WIDTH: u32 = 1100;
const HEAD: u32 = 84;
const CHART: u32 = 380;
const FOOT: u32 = 36;
/// By transport, pale to deep with the socket size; apart for the colour-blind as well.
const VSOCK: RGBColor = RGBColor(0, 95, 175);
const TCP: RGBColor = RGBColor(215, 95, 0);
const INK: RGBColor = RGBColor(40, 40, 40);
const FAINT: RGBColor = RGBColor(110, 110, 110);
const GRID: RGBColor = RGBColor(222, 222, 222);

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Failure = DrawingAreaErrorKind<std::io::Error>;

pub(super) fn render(results: &SocketResults) -> Result<String, PictureError> {
    let charts = results.values(|cell| cell.sessions).len().max(1) as u32;
    let mut svg = String::new();
    {
        let size = (WIDTH, HEAD + charts * CHART + FOOT);
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        draw(&area, results).map_err(|error| PictureError(error.to_string()))?;
    }
    Ok(svg)
}

fn text(size: i32, colour: RGBColor) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&colour).pos(Pos::new(HPos::Left, VPos::Top))
}

fn draw(area: &Area<'_>, results: &SocketResults) -> Result<(), Failure> {
    area.fill(&WHITE)?;
    let (head, rest) = area.split_vertically(HEAD);
    let sessions = results.values(|cell| cell.sessions);
    let (body, foot) = rest.split_vertically(sessions.len() as u32 * CHART);
    let what = match results.mode {
        SocketMode::Stream => "Throughput by message size",
        SocketMode::Rr => "Request/response by message size: median, and 99th percentile",
    };
    let title = format!("{what}, {} → {}", results.sender.name, results.receiver.name);
    head.draw_text(&title, &text(24, INK), (24, 12))?;
    let mut left = 24;
    for series in results.series() {
        let name = format!("{}, sockets of {}", series.0, size(series.1));
        head.draw(&Rectangle::new([(left, 54), (left + 16, 66)], colour(results, series).filled()))?;
        head.draw_text(&name, &text(17, INK), (left + 24, 52))?;
        left += 60 + 8 * i32::try_from(name.len()).unwrap_or_default();
    }
    for (sessions, place) in sessions.iter().zip(body.split_evenly((sessions.len().max(1), 1))) {
        chart(&place, results, *sessions)?;
    }
    foot.draw_text(&results.host.to_string(), &text(15, FAINT), (24, 8))?;
    area.present()
}

fn colour(results: &SocketResults, (transport, socket): (Transport, u32)) -> RGBAColor {
    let sizes = results.values(|cell| cell.socket);
    let rank = sizes.iter().position(|size| *size == socket).unwrap_or(0) + 1;
    let depth = 0.25 + 0.65 * rank as f64 / sizes.len().max(1) as f64;
    match transport {
        Transport::Vsock => VSOCK.mix(depth),
        Transport::Tcp => TCP.mix(depth),
    }
}

fn chart(area: &Area<'_>, results: &SocketResults, sessions: u32) -> Result<(), Failure> {
    let (messages, series) = (results.values(|cell| cell.message), results.series());
    let stream = results.mode == SocketMode::Stream;
    let height =
        |figures: &Figures| if stream { figures.mbit_s.map(|rate| rate / 1000.0) } else { figures.p50_us };
    let tail = |figures: &Figures| figures.p99_us.filter(|_| !stream);
    let of_these = || results.cells.iter().filter(|cell| cell.sessions == sessions).map(|cell| &cell.median);
    // Tails go off the chart rather than flatten everything else.
    let top = of_these().filter_map(height).fold(0.001, f64::max) * if stream { 1.15 } else { 2.5 };
    let x = Axis {
        low: 0.0,
        high: messages.len() as f64,
        ticks: messages.iter().enumerate().map(|(at, message)| (at as f64 + 0.5, size(*message))).collect(),
    };
    let plural = if sessions == 1 { "" } else { "s" };
    let mut chart = ChartBuilder::on(area)
        .margin_left(8)
        .margin_right(24)
        .caption(format!("{sessions} session{plural}"), ("sans-serif", 19))
        .x_label_area_size(34)
        .y_label_area_size(74)
        .build_cartesian_2d(x, 0.0..top)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(FAINT)
        .y_labels(6)
        .y_desc(if stream { "Gbit/s" } else { "µs" })
        .label_style(("sans-serif", 16).into_font().color(&INK))
        .draw()?;
    let width = 0.8 / series.len().max(1) as f64;
    let label = ("sans-serif", 13).into_font().color(&INK).pos(Pos::new(HPos::Center, VPos::Bottom));
    for (group, message) in messages.iter().enumerate() {
        for (column, &of) in series.iter().enumerate() {
            let Some(figures) = results.median(of, *message, sessions) else { continue };
            let Some(value) = height(figures) else { continue };
            let left = group as f64 + 0.1 + width * column as f64;
            let right = left + width * 0.92;
            let bar = Rectangle::new([(left, 0.0), (right, value)], colour(results, of).filled());
            chart.draw_series([bar])?;
            let middle = f64::midpoint(left, right);
            if let Some(tail) = tail(figures) {
                let line = vec![(middle, value), (middle, tail.min(top))];
                chart.draw_series([PathElement::new(line, INK.stroke_width(1))])?;
            }
            let figure = if value < 9.95 { format!("{value:.1}") } else { format!("{value:.0}") };
            chart.draw_series([Text::new(figure, (middle, value + top * 0.01), label.clone())])?;
        }
    }
    Ok(())
}
