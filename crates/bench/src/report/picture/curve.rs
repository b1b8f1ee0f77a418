//! Percentile curves: latency over the number of nines, both axes logarithmic, so that the tail is
//! as visible as the median.

use plotters::prelude::*;

use super::axis::Axis;
use super::{Area, COLOURS, FAINT, Failure, GRID, INK, text};
use crate::measure::latencies::Latencies;
use crate::report::Configuration;

/// Points along a curve.
const STEPS: u32 = 400;
/// Percentiles named on the axis.
const NAMED: [(f64, &str); 8] = [
    (0.0, "0"),
    (0.5, "50 %"),
    (0.9, "90 %"),
    (0.99, "99 %"),
    (0.999, "99.9 %"),
    (0.9999, "99.99 %"),
    (0.99999, "99.999 %"),
    (0.999_999, "99.9999 %"),
];

/// Returns the place of a quantile on the axis: its number of nines.
fn nines(quantile: f64) -> f64 {
    -(1.0 - quantile).log10()
}

/// Returns the largest quantile, in nines, that this many samples can tell from the maximum; at
/// least 90 %.
fn reach(samples: u64) -> f64 {
    (samples as f64).log10().clamp(1.0, 6.0)
}

/// Merges the latencies of all repeats.
fn together(configuration: &Configuration) -> Latencies {
    let mut all = Latencies::new();
    configuration.repeats.iter().filter_map(|figures| figures.histogram.as_ref()).for_each(|h| all.add(h));
    all
}

/// Returns (nines, log10 of µs) along the curve.
fn points(latencies: &Latencies) -> Vec<(f64, f64)> {
    if latencies.count() == 0 {
        return Vec::new();
    }
    let reach = reach(latencies.count());
    (0..=STEPS)
        .map(|step| {
            let x = reach * f64::from(step) / f64::from(STEPS);
            (x, latencies.quantile_us(1.0 - 10_f64.powf(-x)).log10())
        })
        .collect()
}

/// Returns ticks for the named percentiles up to `high` nines.
fn percentiles(high: f64) -> Vec<(f64, String)> {
    let ticks = NAMED.iter().map(|(quantile, name)| (nines(*quantile), (*name).to_owned()));
    ticks.filter(|(nines, _)| *nines <= high + 1e-9).collect()
}

/// Steps within a power of ten, coarse to fine.
const STEPS_OF_TEN: [&[f64]; 3] = [
    &[1.0, 2.0, 5.0],
    &[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0],
    &[1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0],
];

/// Returns ticks at round latencies from `low` to `high`, both log10 of µs: the coarsest steps that
/// give four, else the finest.
fn latency_ticks(low: f64, high: f64) -> Vec<(f64, String)> {
    let with = |steps: &[f64]| -> Vec<_> {
        (-3..=8)
            .flat_map(|power| steps.iter().map(move |step| step.log10() + f64::from(power)))
            .filter(|tick| (low..=high).contains(tick))
            .map(|tick| (tick, latency(tick)))
            .collect()
    };
    let [coarse, middle, fine] = STEPS_OF_TEN.map(with);
    [coarse, middle].into_iter().find(|ticks| ticks.len() >= 4).unwrap_or(fine)
}

fn latency(log: f64) -> String {
    let us = 10_f64.powf(log);
    let rounded = |value: f64| format!("{}", (value * 1000.0).round() / 1000.0);
    match us {
        us if us < 999.5 => format!("{} µs", rounded(us)),
        us if us < 999_500.0 => format!("{} ms", rounded(us / 1e3)),
        us => format!("{} s", rounded(us / 1e6)),
    }
}

/// Draws one curve for each configuration, with its name in the legend.
pub(in crate::report) fn draw(area: &Area<'_>, named: &[(String, &Configuration)]) -> Result<(), Failure> {
    let curve = |(name, c): &(String, &Configuration)| (name.clone(), points(&together(c)), repeats(c));
    let curves: Vec<_> = named.iter().map(curve).collect();
    let every: Vec<_> = curves.iter().flat_map(|(_, points, _)| points.iter().copied()).collect();
    if every.is_empty() {
        return area.draw_text("no answers", &text(26, INK), (400, 180));
    }
    let right = every.iter().map(|point| point.0).fold(1.0, f64::max);
    let low = every.iter().map(|point| point.1).fold(f64::MAX, f64::min) - 0.05;
    let high = every.iter().map(|point| point.1).fold(f64::MIN, f64::max).max(low + 0.5) + 0.05;
    let x = Axis { low: 0.0, high: right, ticks: percentiles(right) };
    let y = Axis { low, high, ticks: latency_ticks(low, high) };
    let mut chart = ChartBuilder::on(area)
        .margin_left(8)
        .margin_right(40)
        .x_label_area_size(44)
        .y_label_area_size(74)
        .build_cartesian_2d(x, y)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(FAINT)
        .x_desc("percentile")
        .label_style(("sans-serif", 17).into_font().color(&INK))
        .draw()?;
    for ((name, points, repeats), colour) in curves.iter().zip(COLOURS) {
        for repeat in repeats {
            chart.draw_series(LineSeries::new(repeat.iter().copied(), colour.mix(0.25).stroke_width(1)))?;
        }
        chart
            .draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(3)))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(3)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .margin(14)
        .background_style(WHITE.mix(0.85))
        .label_font(("sans-serif", 17).into_font().color(&INK))
        .draw()
}

/// Returns the curve of each repeat, if there are several.
fn repeats(configuration: &Configuration) -> Vec<Vec<(f64, f64)>> {
    if configuration.repeats.len() < 2 {
        return Vec::new();
    }
    configuration.repeats.iter().filter_map(|figures| figures.histogram.as_ref()).map(points).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(low_us: f64, high_us: f64) -> String {
        let names = latency_ticks(low_us.log10(), high_us.log10()).into_iter().map(|(_, name)| name);
        names.collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn ticks_are_round_and_as_many_as_needed() {
        assert_eq!(names(0.9, 11.0), "1 µs, 2 µs, 5 µs, 10 µs");
        assert_eq!(names(380.0, 1600.0), "400 µs, 500 µs, 700 µs, 1 ms, 1.5 ms");
        assert_eq!(names(30.0, 45.0), "30 µs, 35 µs, 40 µs, 45 µs");
        assert_eq!(names(2e5, 3e6), "200 ms, 500 ms, 1 s, 2 s");
    }

    #[test]
    fn curves_end_where_samples_can_tell() {
        assert!((nines(0.99) - 2.0).abs() < 1e-9);
        assert!((reach(5) - 1.0).abs() < 1e-9);
        assert!((reach(10_000) - 4.0).abs() < 1e-9);
        assert_eq!(percentiles(3.0).last().unwrap().1, "99.9 %");
    }
}
