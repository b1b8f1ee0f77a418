//! Latencies of requests and responses, by TCP and through queue pairs in alternation.

use serde_json::json;

use super::Way;
use crate::figure::{Value, shown};
use crate::lab::Lab;
use crate::machine::Doc;
use crate::reason::Measured;
use crate::rounds::{Plan, Rounds, Sample};

/// Percentiles of the round trips of a sample, in µs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in super::super) struct Latency {
    pub(in super::super) p50_us: f64,
    pub(in super::super) p99_us: f64,
}

impl Latency {
    /// Makes a sample for rounds.
    pub(in super::super) fn sample(self) -> Sample {
        Sample::new(Doc::from(json!({ "p50_us": self.p50_us, "p99_us": self.p99_us })))
    }
}

/// Rounds of latencies by several ways.
#[derive(Debug)]
pub(in super::super) struct Latencies(Rounds);

impl Latencies {
    /// Measures so many rounds of these cells, which are ways by their names.
    pub(in super::super) fn take(
        lab: &mut Lab,
        rounds: usize,
        cells: &[&str],
        mut measure: impl FnMut(&mut Lab, Way) -> Measured<Latency>,
    ) -> Measured<Self> {
        let take = |cell: &str| Ok(measure(lab, Way::of(cell))?.sample());
        Rounds::take(Plan::exactly(rounds), cells, None, take).map(Self)
    }

    /// Median of a cell's ratios to TCP, such as of `p50_us`.
    pub(in super::super) fn of_tcp(&self, cell: &str, figure: &str) -> Measured<Value> {
        self.0.ratio(cell, "tcp", figure)
    }

    /// Writes the medians of these cells, such as `tcp 660/1200, rings 700/1500 µs`.
    pub(in super::super) fn listed(&self, cells: &[&str]) -> Measured<String> {
        let of = |cell: &&str| {
            let [p50, p99] = ["p50_us", "p99_us"].map(|figure| self.0.median(cell, figure));
            Ok(format!("{cell} {}/{}", shown(p50?.value), shown(p99?.value)))
        };
        Ok(format!("p50/p99 {} µs", cells.iter().map(of).collect::<Measured<Vec<_>>>()?.join(", ")))
    }
}
