//! Formats of the metrics: OpenMetrics, and the older text format of Prometheus.

use std::fmt::Write as _;

use axum::http::{HeaderMap, header};

/// A format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// OpenMetrics 1.0, which Prometheus asks for.
    OpenMetrics,
    /// The text format 0.0.4, which everything else reads: the textfile collector of
    /// node_exporter, `promtool check metrics`.
    Plain,
}

impl Format {
    /// Returns the format that a request accepts.
    pub(super) fn accepted(headers: &HeaderMap) -> Self {
        let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let mut types = accepted.flat_map(|value| value.split(','));
        if types.any(|kind| kind.trim_start().starts_with("application/openmetrics-text")) {
            Self::OpenMetrics
        } else {
            Self::Plain
        }
    }

    /// Returns the value of the header `Content-Type`.
    pub(super) const fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Plain => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// Returns metrics in this format, from those in OpenMetrics. In the plain format, counters are
    /// declared by the whole name of their samples, and there is no mark of the end.
    pub(super) fn convert(self, text: String) -> String {
        if self == Self::OpenMetrics {
            return text;
        }
        let mut plain = String::with_capacity(text.len());
        let mut help = None;
        for line in text.lines().filter(|line| *line != "# EOF") {
            let declared = |begin: &str| line.strip_prefix(begin)?.split_once(' ');
            let written = if let Some(named) = declared("# HELP ") {
                help = Some(named);
                continue;
            } else if let Some((name, kind)) = declared("# TYPE ") {
                let end = if kind == "counter" { "_total" } else { "" };
                let explanation = help.take().map_or("", |(_, text)| text);
                write!(plain, "# HELP {name}{end} {explanation}\n# TYPE {name}{end} {kind}\n")
            } else {
                writeln!(plain, "{line}")
            };
            written.expect("writing to a string cannot fail");
        }
        plain
    }
}
