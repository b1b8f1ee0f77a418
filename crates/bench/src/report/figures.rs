//! Figures of one repeat.

use serde::{Deserialize, Serialize};

use crate::measure::latencies::Latencies;

/// Figures of one repeat, or their median over repeats. A figure that the kind does not measure is
/// absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Figures {
    /// Median latency in µs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_us: Option<f64>,
    /// 90th percentile in µs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p90_us: Option<f64>,
    /// 99th percentile in µs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_us: Option<f64>,
    /// 99.9th percentile in µs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_9_us: Option<f64>,
    /// 99.99th percentile in µs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_99_us: Option<f64>,
    /// Number of answers received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Number of requests without an answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<u64>,
    /// Transactions per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_s: Option<f64>,
    /// Payload received, in Mbit/s (10⁶).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mbit_s: Option<f64>,
    /// Jain's fairness index of the sessions' bytes, (Σx)²/(n·Σx²): 1 if all sent the same, 1/n if
    /// one sent everything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fairness: Option<f64>,
    /// CPU used meanwhile.
    pub cpu: Cpu,
    /// Every latency.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub histogram: Option<Latencies>,
}

/// CPU used during a repeat, in percent of one CPU: 150 means one and a half CPUs all the time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cpu {
    /// Used by the sender: a guest's CPUs by the guest's own count, or the process on the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sender: Option<f64>,
    /// Used by the receiver, counted like the sender's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receiver: Option<f64>,
    /// Used by the fabric's process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fabric: Option<f64>,
    /// Used by everything on the host, guests included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<f64>,
}

impl Figures {
    /// Returns the figures of a latency measurement.
    pub fn of_latencies(latencies: Latencies) -> Self {
        let quantile = |q| (latencies.count() > 0).then(|| latencies.quantile_us(q));
        Self {
            p50_us: quantile(0.5),
            p90_us: quantile(0.9),
            p99_us: quantile(0.99),
            p99_9_us: quantile(0.999),
            p99_99_us: quantile(0.9999),
            count: Some(latencies.count()),
            histogram: Some(latencies),
            ..Self::default()
        }
    }

    /// Returns the median of each figure.
    pub(super) fn median(repeats: &[Self]) -> Self {
        let of = |figure: fn(&Self) -> Option<f64>| median(repeats.iter().filter_map(figure).collect());
        let whole = |figure: fn(&Self) -> Option<u64>| {
            median(repeats.iter().filter_map(figure).map(|n| n as f64).collect()).map(|n| n.round() as u64)
        };
        Self {
            p50_us: of(|f| f.p50_us),
            p90_us: of(|f| f.p90_us),
            p99_us: of(|f| f.p99_us),
            p99_9_us: of(|f| f.p99_9_us),
            p99_99_us: of(|f| f.p99_99_us),
            count: whole(|f| f.count),
            lost: whole(|f| f.lost),
            per_s: of(|f| f.per_s),
            mbit_s: of(|f| f.mbit_s),
            fairness: of(|f| f.fairness),
            cpu: Cpu {
                sender: of(|f| f.cpu.sender),
                receiver: of(|f| f.cpu.receiver),
                fabric: of(|f| f.cpu.fabric),
                host: of(|f| f.cpu.host),
            },
            histogram: None,
        }
    }
}

/// Returns the middle value, or the mean of the two in the middle; none without values.
pub(super) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        n if n % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}
