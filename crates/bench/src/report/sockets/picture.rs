//! Draws one chart for each number of sessions: bars by message size, one for each transport and
//! socket size.

use plotters::prelude::*;

use super::{Figures, SocketMode, SocketResults, Transport, size};
use crate::report::picture::{
    self, Area, BLUE, FAINT, Failure, GREEN, INK, ORANGE, PictureError, columns, legend, text,
};

const WIDTH: u32 = 1100;
const HEAD: u32 = 84;
const CHART: u32 = 380;
const FOOT: u32 = 36;

pub(super) fn render(results: &SocketResults) -> Result<String, PictureError> {
    let charts = results.values(|cell| cell.sessions).len().max(1) as u32;
    picture::svg((WIDTH, HEAD + charts * CHART + FOOT), |area| draw(area, results))
}

fn draw(area: &Area<'_>, results: &SocketResults) -> Result<(), Failure> {
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
        legend(&head, (left, 52), &name, colour(results, series))?;
        left += 60 + 8 * i32::try_from(name.len()).unwrap_or_default();
    }
    for (sessions, place) in sessions.iter().zip(body.split_evenly((sessions.len().max(1), 1))) {
        chart(&place, results, *sessions)?;
    }
    foot.draw_text(&results.host.to_string(), &text(15, FAINT), (24, 8))
}

/// The hue tells the transport, its depth the socket size.
fn colour(results: &SocketResults, (transport, socket): (Transport, u32)) -> RGBAColor {
    let sizes = results.values(|cell| cell.socket);
    let rank = sizes.iter().position(|size| *size == socket).unwrap_or(0) + 1;
    let depth = 0.25 + 0.65 * rank as f64 / sizes.len().max(1) as f64;
    match transport {
        Transport::Vsock => BLUE.mix(depth),
        Transport::Ring => INK.mix(depth),
        Transport::Tcp => ORANGE.mix(depth),
        Transport::TcpAuto => GREEN.mix(depth),
    }
}

fn chart(area: &Area<'_>, results: &SocketResults, sessions: u32) -> Result<(), Failure> {
    let (messages, series) = (results.values(|cell| cell.message), results.series());
    let stream = results.mode == SocketMode::Stream;
    let height =
        |figures: &Figures| if stream { figures.mbit_s.map(|rate| rate / 1000.0) } else { figures.p50_us };
    let tail = |figures: &Figures| figures.p99_us.filter(|_| !stream);
    let of_these = || results.cells.iter().filter(|cell| cell.sessions == sessions).map(|cell| &cell.median);
    // A long tail is cut off at the top, so that it does not flatten all bars.
    let top = of_these().filter_map(height).fold(0.001, f64::max) * if stream { 1.15 } else { 2.5 };
    let plural = if sessions == 1 { "" } else { "s" };
    let area = area.titled(&format!("{sessions} session{plural}"), ("sans-serif", 19))?;
    let groups = messages.iter().map(|message| size(*message));
    let mut chart = columns::chart(&area, groups, top, if stream { "Gbit/s" } else { "µs" })?;
    let width = 0.8 / series.len().max(1) as f64;
    for (group, message) in messages.iter().enumerate() {
        for (column, &of) in series.iter().enumerate() {
            let Some(figures) = results.median(of, *message, sessions) else { continue };
            let Some(value) = height(figures) else { continue };
            let left = group as f64 + 0.1 + width * column as f64;
            let right = left + width * 0.92;
            columns::bar(&mut chart, (left, right), value, colour(results, of))?;
            let middle = f64::midpoint(left, right);
            if let Some(tail) = tail(figures) {
                let line = vec![(middle, value), (middle, tail.min(top))];
                chart.draw_series([PathElement::new(line, INK.stroke_width(1))])?;
            }
            let figure = if value < 9.95 { format!("{value:.1}") } else { format!("{value:.0}") };
            columns::label(&mut chart, figure, (middle, value + top * 0.01), 13)?;
        }
    }
    Ok(())
}
