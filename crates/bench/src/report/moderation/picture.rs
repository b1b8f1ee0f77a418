//! Draws interrupts, the fabric's CPU and latency over the load: three charts, one line for each
//! scheme.

use plotters::prelude::*;

use super::{Cell, ModerationResults};
use crate::report::picture::{self, Area, COLOURS, FAINT, Failure, GRID, INK, PictureError, legend, text};

const SIZE: (u32, u32) = (1200, 480);

/// One figure over the load.
struct Chart {
    name: &'static str,
    of: fn(&Cell) -> Option<f64>,
    /// Least value on the logarithmic axis.
    least: f64,
}

const CHARTS: [Chart; 3] = [
    Chart { name: "interrupts per second", of: |cell| Some(cell.paced.interrupts_per_s), least: 10.0 },
    Chart { name: "CPU of the fabric, percent", of: |cell| cell.fabric_percent, least: 1.0 },
    Chart { name: "latency, 50th and 99th percentile, µs", of: |cell| Some(cell.paced.p99_us), least: 1.0 },
];

pub(super) fn render(results: &ModerationResults) -> Result<String, PictureError> {
    picture::svg(SIZE, |area| draw(area, results))
}

fn draw(area: &Area<'_>, results: &ModerationResults) -> Result<(), Failure> {
    let (head, rest) = area.split_vertically(76);
    let (body, foot) = rest.split_vertically(SIZE.1 - 76 - 30);
    head.draw_text("Moderation: interrupts, CPU and latency over the load", &text(24, INK), (24, 12))?;
    for (index, scheme) in results.schemes().into_iter().enumerate() {
        let left = 24 + 150 * i32::try_from(index).unwrap_or_default();
        legend(&head, (left, 48), scheme, COLOURS[index % COLOURS.len()])?;
    }
    for (chart, place) in CHARTS.iter().zip(body.split_evenly((1, CHARTS.len()))) {
        chart.draw(&place, results)?;
    }
    foot.draw_text(&results.host.to_string(), &text(15, FAINT), (24, 6))
}

impl Chart {
    fn draw(&self, area: &Area<'_>, results: &ModerationResults) -> Result<(), Failure> {
        let rates = results.rates();
        let value = |scheme: &str, rate, of: fn(&Cell) -> Option<f64>| {
            results.median(scheme, rate, of).map(|value| value.max(self.least))
        };
        let every = results
            .schemes()
            .into_iter()
            .flat_map(|scheme| rates.iter().filter_map(move |&rate| value(scheme, rate, self.of)));
        let top = every.fold(self.least * 10.0, f64::max) * 1.5;
        let mut chart = ChartBuilder::on(area)
            .margin_left(8)
            .margin_right(16)
            .caption(self.name, ("sans-serif", 17))
            .x_label_area_size(34)
            .y_label_area_size(62)
            .build_cartesian_2d(-0.3..rates.len() as f64 - 0.7, (self.least..top).log_scale())?;
        let label = |x: &f64| {
            let near = (x.round() - x).abs() < 1e-6;
            rates
                .get(x.round().max(0.0) as usize)
                .filter(|_| near)
                .map(|&rate| load(rate))
                .unwrap_or_default()
        };
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_labels(4 * rates.len())
            .x_label_formatter(&label)
            .y_label_formatter(&|y| format!("{y:.0}"))
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .label_style(("sans-serif", 15).into_font().color(&INK))
            .draw()?;
        for (index, scheme) in results.schemes().into_iter().enumerate() {
            let colour = COLOURS[index % COLOURS.len()];
            let points = |of| -> Vec<(f64, f64)> {
                let at = rates.iter().enumerate();
                at.filter_map(|(x, &rate)| Some((x as f64, value(scheme, rate, of)?))).collect()
            };
            let line = points(self.of);
            chart.draw_series(LineSeries::new(line.iter().copied(), colour.stroke_width(2)))?;
            chart.draw_series(line.iter().map(|&at| Circle::new(at, 4, colour.filled())))?;
            if self.name.starts_with("latency") {
                let median = points(|cell| Some(cell.paced.p50_us));
                chart.draw_series(median.iter().map(|&at| Circle::new(at, 4, colour.stroke_width(1))))?;
                chart.draw_series(DashedLineSeries::new(median, 3, 4, colour.stroke_width(1)))?;
            }
        }
        Ok(())
    }
}

/// Formats a load for the axis: `10 k` for 10,000.
fn load(rate: u32) -> String {
    match rate {
        rate if rate >= 1_000_000 && rate.is_multiple_of(1_000_000) => format!("{} M", rate / 1_000_000),
        rate if rate >= 1000 && rate.is_multiple_of(1000) => format!("{} k", rate / 1000),
        rate => rate.to_string(),
    }
}
