//! Cells of a `taut bench vsock` result.

use crate::figure::shown;
use crate::machine::Doc;
use crate::reason::Measured;

/// A cell: all repeats with the same settings.
#[derive(Debug, Clone, Copy)]
pub(in crate::sets) struct Cell {
    pub(in crate::sets) transport: &'static str,
    pub(in crate::sets) message: u32,
    pub(in crate::sets) sessions: u32,
}

impl Cell {
    /// A cell of one session.
    pub(in crate::sets) const fn of(transport: &'static str, message: u32) -> Self {
        Self { transport, message, sessions: 1 }
    }

    /// Finds the cell in a result with one size of sockets.
    fn find(self, report: &Doc) -> Measured<Doc> {
        let (message, sessions) = (self.message.to_string(), self.sessions.to_string());
        let fields = [("transport", self.transport), ("message", &message), ("sessions", &sessions)];
        report.find("cells", &fields)
    }

    /// Returns a figure of each repeat.
    pub(in crate::sets) fn figures(self, report: &Doc, figure: &str) -> Measured<Vec<f64>> {
        self.find(report)?.numbers("repeats", figure)
    }

    /// Returns the median of a figure.
    pub(in crate::sets) fn median(self, report: &Doc, figure: &str) -> Measured<f64> {
        self.find(report)?.number(&format!("median.{figure}"))
    }

    /// Returns the median throughput in Gbit/s.
    pub(in crate::sets) fn gbit_s(self, report: &Doc) -> Measured<f64> {
        Ok(self.median(report, "mbit_s")? / 1000.0)
    }

    /// Writes the percentiles p50, p99 and p99.9.
    pub(in crate::sets) fn percentiles(self, report: &Doc) -> Measured<String> {
        let cell = self.find(report)?.at("median")?;
        let [p50, p99, p99_9] = ["p50_us", "p99_us", "p99_9_us"].map(|name| cell.number(name));
        Ok(format!("{}/{}/{} µs", shown(p50?), shown(p99?), shown(p99_9?)))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_cell_is_found_by_all_its_settings() {
        let cell = |transport: &str, message: u32, rate: f64| {
            json!({"transport": transport, "socket": 262_144, "message": message, "sessions": 1,
                   "repeats": [{"mbit_s": rate}], "median": {"mbit_s": rate}})
        };
        let report =
            json!({"cells": [cell("tcp", 256, 1.0), cell("vsock", 64, 2.0), cell("vsock", 256, 3.0)]});
        let report = Doc::from(report);
        assert_eq!(Cell::of("vsock", 256).median(&report, "mbit_s"), Ok(3.0));
        assert_eq!(Cell::of("vsock", 256).figures(&report, "mbit_s"), Ok(vec![3.0]));
        assert!(Cell::of("vsock", 4096).median(&report, "mbit_s").is_err());
        assert!(Cell::of("vsock", 256).median(&report, "p50_us").is_err());
    }
}
