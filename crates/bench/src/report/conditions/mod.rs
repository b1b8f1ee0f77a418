//! Request/response under several conditions of the host, measured in alternation (tables 2 and 3
//! of S0, puts of S3).

mod picture;
mod table;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use super::figures::median;
use super::{Configuration, EndPoint, Figures, Host, PictureError};

/// Results of one experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConditionResults {
    /// The experiment.
    pub experiment: Experiment,
    /// Bytes of each request, and of each response if both have the same size.
    pub size: u32,
    /// Time from one request to the next in µs. If absent, a request follows each response at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_us: Option<u64>,
    /// Length of each repeat in seconds.
    pub duration_s: f64,
    /// The host.
    pub host: Host,
    /// VMs that compute meanwhile.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub neighbours: Vec<EndPoint>,
    /// One entry for each condition, in the order in which they take turns. Ratios are relative to
    /// the first.
    pub conditions: Vec<Condition>,
}

/// An experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Experiment {
    /// A latency-sensitive VM beside CPU-bound ones (S0, tables 2 and 3).
    Neighbours,
    /// Puts of an object, one at a time (S3).
    Puts,
}

impl Experiment {
    /// Returns the name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Neighbours => "neighbours",
            Self::Puts => "puts",
        }
    }
}

/// A condition and what was measured under it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Condition {
    /// Name in results, such as `high`.
    pub name: String,
    /// Settings in force, and load.
    pub meaning: String,
    /// End points and latencies of each repeat.
    pub configuration: Configuration,
    /// Other counts, one entry for each repeat.
    pub beside: Vec<Beside>,
}

/// Counts beside the latencies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Beside {
    /// Time that the VM's vCPUs were ready but did not run, in percent of one pCPU (`%RDY`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_percent: Option<f64>,
    /// Units of work per second of all neighbours together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub work_per_s: Option<f64>,
    /// Mean `%RDY` of the neighbours.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub neighbours_ready_percent: Option<f64>,
}

impl Beside {
    fn median(repeats: &[Self]) -> Self {
        let of = |value: fn(&Self) -> Option<f64>| median(repeats.iter().filter_map(value).collect());
        Self {
            ready_percent: of(|beside| beside.ready_percent),
            work_per_s: of(|beside| beside.work_per_s),
            neighbours_ready_percent: of(|beside| beside.neighbours_ready_percent),
        }
    }
}

impl Condition {
    /// Creates a condition from its repeats.
    pub fn new(
        name: impl Into<String>,
        meaning: impl Into<String>,
        [sender, receiver]: [EndPoint; 2],
        repeats: Vec<(Figures, Beside)>,
    ) -> Self {
        let (figures, beside) = repeats.into_iter().unzip();
        let configuration = Configuration::new(sender, receiver, figures);
        Self { name: name.into(), meaning: meaning.into(), configuration, beside }
    }

    /// Returns the median of each count.
    pub fn median_beside(&self) -> Beside {
        Beside::median(&self.beside)
    }
}

impl ConditionResults {
    /// Returns the neighbours' work in percent of that under the first condition in which they
    /// worked.
    fn kept_percent(&self, beside: Beside) -> Option<f64> {
        let first = self.conditions.iter().find_map(|condition| condition.median_beside().work_per_s)?;
        beside.work_per_s.filter(|_| first > 0.0).map(|work| 100.0 * work / first)
    }

    /// Returns aligned text: for each condition a line for each repeat and their median, then the
    /// settings.
    pub fn table(&self) -> String {
        table::render(self)
    }

    /// Returns an SVG picture: a percentile curve for each condition.
    ///
    /// # Errors
    /// Only if the drawing library fails.
    pub fn svg(&self) -> Result<String, PictureError> {
        picture::render(self)
    }

    /// Formats the settings in short.
    fn settings(&self) -> String {
        let pace = self.interval_us.map_or_else(
            || "one after the other".to_owned(),
            |us| format!("one every {} ms", us as f64 / 1000.0),
        );
        format!("{} B, {pace}, {} s", self.size, self.duration_s)
    }

    /// Compares the first condition with each other one, in one sentence each.
    fn summary(&self) -> Vec<String> {
        let Some((first, others)) = self.conditions.split_first() else { return Vec::new() };
        let line = |other: &Condition| {
            let (a, b) = (&first.configuration.median, &other.configuration.median);
            let times = |of: fn(&Figures) -> Option<f64>| {
                let (a, b) = of(a).zip(of(b))?;
                (b > 0.0).then(|| format!("{:.2}", a / b))
            };
            let mut parts = Vec::new();
            for (name, of) in [
                ("p50", (|f| f.p50_us) as fn(&Figures) -> Option<f64>),
                ("p99", |f| f.p99_us),
                ("p99.9", |f| f.p99_9_us),
            ] {
                parts.extend(times(of).map(|ratio| format!("{name} 1/{ratio}")));
            }
            let faster = b.per_s.zip(a.per_s).filter(|(_, a)| *a > 0.0);
            parts.extend(faster.map(|(b, a)| format!("{:.2} × the requests", b / a)));
            let kept = self.kept_percent(other.median_beside());
            parts.extend(kept.map(|kept| format!("neighbours keep {kept:.0} % of their work")));
            format!("{} beside {}: {}", other.name, first.name, parts.join(", "))
        };
        others.iter().map(line).collect()
    }
}
