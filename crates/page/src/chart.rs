//! Charts of rates over time, as SVG.

use maud::{Markup, html};

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
    /// Points, from the oldest to the newest: ms since the Unix epoch, and bits per second.
    pub points: Vec<(u64, f64)>,
}

/// Draws lines over a common time. Where points are further apart than `step_ms`, a line has a gap.
/// Without two points in any of them there is no drawing.
pub fn rates(title: &str, step_ms: u64, lines: &[Line]) -> Markup {
    let points = || lines.iter().flat_map(|line| &line.points);
    let begin = points().map(|point| point.0).min().unwrap_or_default();
    let end = points().map(|point| point.0).max().unwrap_or_default();
    if begin == end {
        return html! { p.quiet { "No samples in this period yet." } };
    }
    let top = nice(points().map(|point| point.1).fold(0.0, f64::max));
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
            @for part in 0..=PARTS {
                @let value = top * f64::from(part) / f64::from(PARTS);
                @let height = format!("{:.1}", y(value));
                line.grid x1=(LEFT) x2=(WIDTH) y1=(height) y2=(height) {}
                text.scale x=(LEFT - 8.0) y=(format!("{:.1}", y(value) + 4.0)) text-anchor="end" {
                    (text::rate(value))
                }
            }
            @for (ms, anchor) in [(begin, "start"), (middle, "middle"), (end, "end")] {
                text.scale x=(format!("{:.1}", x(ms))) y=(HEIGHT - 6.0) text-anchor=(anchor) {
                    (text::time_of_day(ms))
                }
            }
            @for line in lines {
                @for points in line.points.chunk_by(is_near) {
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

/// Returns the least 1, 2, 4 or 8 times a power of ten that is not below a value; at least 1000.
fn nice(value: f64) -> f64 {
    let mut size = 1000.0;
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
            assert_eq!(nice(largest).total_cmp(&end), std::cmp::Ordering::Equal, "{largest}");
        }
    }

    #[test]
    fn lines_stay_within_the_drawing() {
        let line = |class, points| Line { name: "Receive", class, points };
        let received = line("rx", vec![(0, 0.0), (500, 4e6), (1000, 2e6)]);
        let svg = rates("Rates", 500, &[received, line("tx", Vec::new())]).into_string();
        assert!(svg.contains("points=\"104.0,176.0 412.0,10.0 720.0,93.0\""), "{svg}");
        let torn = [line("rx", vec![(0, 0.0), (500, 1.0), (1500, 1.0)])];
        assert_eq!(
            rates("Rates", 500, &torn).into_string().matches("<polyline").count(),
            3,
            "two, and the key"
        );
        assert!(!svg.contains("NaN") && svg.contains("4.00\u{a0}Mbps"), "{svg}");
        let none = rates("Rates", 500, &[line("rx", vec![(7, 1.0)])]).into_string();
        assert!(none.contains("No samples"), "{none}");
    }
}
