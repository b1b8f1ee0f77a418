//! Charts of values over time, and histograms, as SVG.

use maud::{Markup, html};
use taut_api::statistics::{Column, Series, SeriesPoint};

use crate::text;

/// Width of the drawing, in its own units.
const WIDTH: f64 = 720.0;
/// Height of the drawing.
const HEIGHT: f64 = 200.0;
/// Room on the left, for the scale.
const LEFT: f64 = 104.0;
/// Room below, for times.
const BELOW: f64 = 24.0;
/// Room above the largest value.
const ABOVE: f64 = 10.0;
/// Number of parts of the scale.
const PARTS: u32 = 4;

/// One line of a chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// Name in the legend.
    pub name: &'static str,
    /// Class in the style sheet, which gives the colour and dashes.
    pub class: &'static str,
    /// Points, from the oldest to the newest: ms since the Unix epoch, and the value.
    pub points: Vec<(u64, f64)>,
}

/// Unit of a chart's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Bits per second.
    BitRate,
    /// Percent.
    Percent,
}

impl Unit {
    fn write(self, value: f64) -> String {
        match self {
            Self::BitRate => text::rate(value),
            Self::Percent => text::percent(value),
        }
    }

    /// Returns the least value at which a scale ends.
    const fn least(self) -> f64 {
        match self {
            Self::BitRate => 1000.0,
            Self::Percent => 1.0,
        }
    }
}

/// One bar of a histogram.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bar {
    /// Name of the class of values.
    pub name: String,
    /// Number of values in it.
    pub count: u64,
}

/// Takes a line out of a series. Points that are not known are left out.
pub fn points(series: &Series, column: Column) -> Vec<(u64, f64)> {
    let place = series.columns.iter().position(|known| *known == column);
    let value = |point: &SeriesPoint| Some((point.to_ms, (*point.values.get(place?)?)?));
    series.points.iter().filter_map(value).collect()
}

/// Draws lines over a common time. Where points are further apart than `step_ms`, a line has a gap.
/// Without two points in any of them there is no drawing.
pub fn lines(title: &str, step_ms: u64, unit: Unit, lines: &[Line]) -> Markup {
    let points = || lines.iter().flat_map(|line| &line.points);
    let begin = points().map(|point| point.0).min().unwrap_or_default();
    let end = points().map(|point| point.0).max().unwrap_or_default();
    if begin == end {
        return html! { p.quiet { "No samples in this period yet." } };
    }
    let top = nice(unit.least(), points().map(|point| point.1).fold(0.0, f64::max));
    let x = |ms: u64| LEFT + (WIDTH - LEFT) * (ms - begin) as f64 / (end - begin) as f64;
    let y = |value: f64| HEIGHT - BELOW - (HEIGHT - BELOW - ABOVE) * value / top;
    let path = |points: &[(u64, f64)]| {
        let at = |(ms, value): &(u64, f64)| format!("{:.1},{:.1}", x(*ms), y(*value));
        points.iter().map(at).collect::<Vec<_>>().join(" ")
    };
    // A newest point may cover less than a step.
    let is_near = |a: &(u64, f64), b: &(u64, f64)| b.0.saturating_sub(a.0) <= step_ms + step_ms / 2;
    let middle = begin + (end - begin) / 2;
    html! {
        svg.chart role="img" viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) {
            title { (title) }
            desc { @for line in lines { (description(unit, line)) " " } }
            @for part in 0..=PARTS {
                @let value = top * f64::from(part) / f64::from(PARTS);
                @let height = format!("{:.1}", y(value));
                line.grid x1=(LEFT) x2=(WIDTH) y1=(height) y2=(height) {}
                text.scale x=(LEFT - 8.0) y=(format!("{:.1}", y(value) + 4.0)) text-anchor="end" {
                    (unit.write(value))
                }
            }
            @for (ms, anchor) in [(begin, "start"), (middle, "middle"), (end, "end")] {
                text.scale x=(format!("{:.1}", x(ms))) y=(HEIGHT - 6.0) text-anchor=(anchor) {
                    (text::time_of_day(ms))
                }
            }
            @for line in lines {
                @for points in line.points.chunk_by(is_near) {
                    @if let [(ms, value)] = points {
                        circle.line.(line.class) cx=(format!("{:.1}", x(*ms))) cy=(format!("{:.1}", y(*value))) r="1.5" {}
                    }
                    polyline.line.(line.class) points=(path(points)) {}
                }
            }
        }
        ul.legend {
            @for line in lines {
                li {
                    svg.key aria-hidden="true" viewBox="0 0 24 8" width="24" height="8" {
                        polyline.line.(line.class) points="0,4 24,4" {}
                    }
                    (line.name)
                }
            }
        }
    }
}

/// Describes a line in a sentence.
fn description(unit: Unit, line: &Line) -> String {
    let values = || line.points.iter().map(|point| point.1);
    let Some(last) = values().next_back() else { return format!("{}: no samples.", line.name) };
    let (least, most) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
    let [least, most, last] = [least, most, last].map(|value| unit.write(value));
    format!("{}: {least} to {most}, at last {last}.", line.name)
}

/// Height of a bar, with the space below it.
const BAR: u32 = 22;
/// Place where bars begin.
const BARS_AT: u32 = 130;
/// Length of the longest bar.
const LONGEST_BAR: u32 = 500;

/// Draws a histogram, a class of values in each row.
pub fn histogram(title: &str, bars: &[Bar]) -> Markup {
    let most = bars.iter().map(|bar| bar.count).max().unwrap_or_default();
    if most == 0 {
        return html! { p.quiet { "No samples in this period yet." } };
    }
    let height = BAR * bars.len() as u32 + 8;
    let length = |count: u64| format!("{:.1}", f64::from(LONGEST_BAR) * count as f64 / most as f64);
    html! {
        svg.chart role="img" viewBox=(format!("0 0 {WIDTH} {height}")) {
            title { (title) }
            desc { @for bar in bars { (bar.name) ": " (bar.count) ". " } }
            @for (index, bar) in bars.iter().enumerate() {
                @let top = BAR * index as u32 + 4;
                text.scale x=(BARS_AT - 8) y=(top + 13) text-anchor="end" { (bar.name) }
                @if bar.count > 0 { rect.bar x=(BARS_AT) y=(top) width=(length(bar.count)) height=(BAR - 5) {} }
                @let end = f64::from(BARS_AT) + f64::from(LONGEST_BAR) * bar.count as f64 / most as f64;
                text.scale x=(format!("{:.1}", end + 6.0)) y=(top + 13) { (text::count(bar.count)) }
            }
        }
    }
}

/// Returns the least 1, 2, 4 or 8 times a power of ten that is not below a value, and `least` or
/// more, which is a power of ten.
fn nice(least: f64, value: f64) -> f64 {
    let mut size = least;
    loop {
        for factor in [1.0, 2.0, 4.0, 8.0] {
            if size * factor >= value || size > 1e18 {
                return size * factor;
            }
        }
        size *= 10.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scale_ends_at_a_round_number() {
        for (largest, end) in [(0.0, 1e3), (1e3, 1e3), (1500.0, 2e3), (9e6, 1e7), (f64::INFINITY, 1e19)] {
            assert_eq!(nice(1e3, largest).total_cmp(&end), std::cmp::Ordering::Equal, "{largest}");
        }
    }

    #[test]
    fn lines_stay_within_the_drawing() {
        let line = |class, points| Line { name: "Receive", class, points };
        let received = line("rx", vec![(0, 0.0), (500, 4e6), (1000, 2e6)]);
        let svg = lines("Rates", 500, Unit::BitRate, &[received, line("tx", Vec::new())]).into_string();
        assert!(svg.contains("points=\"104.0,176.0 412.0,10.0 720.0,93.0\""), "{svg}");
        let torn = [line("rx", vec![(0, 0.0), (500, 1.0), (1500, 1.0)])];
        assert_eq!(
            lines("Rates", 500, Unit::BitRate, &torn).into_string().matches("<polyline").count(),
            3,
            "two, and the key"
        );
        assert!(!svg.contains("NaN") && svg.contains("4.00\u{a0}Mbps"), "{svg}");
        let none = lines("Rates", 500, Unit::BitRate, &[line("rx", vec![(7, 1.0)])]).into_string();
        assert!(none.contains("No samples"), "{none}");
        assert!(svg.contains("Receive: 0\u{a0}bps to 4.00\u{a0}Mbps, at last 2.00\u{a0}Mbps."), "{svg}");
    }

    #[test]
    fn bars_have_their_share_of_the_longest() {
        let bar = |name: &str, count| Bar { name: name.to_owned(), count };
        let svg = histogram("<b>", &[bar("below 1", 50), bar("over 1", 100), bar("none", 0)]).into_string();
        assert!(svg.contains("width=\"250.0\"") && svg.contains("width=\"500.0\""), "{svg}");
        assert_eq!(svg.matches("<rect").count(), 2);
        assert!(svg.contains("<title>&lt;b&gt;</title>"), "{svg}");
        assert!(histogram("x", &[bar("a", 0)]).into_string().contains("No samples"));
    }
}
