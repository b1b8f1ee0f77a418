//! The counts of a measurement.

use serde::{Deserialize, Serialize};

use super::Setup;

/// The results of all repeats.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Frames and rings.
    #[serde(flatten)]
    pub setup: Setup,
    /// One entry for each repeat.
    pub repeats: Vec<Sample>,
}

/// One repeat.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Round trip of a cache line between the two CPUs in ns, before and after, if it was probed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe_ns: Option<[f64; 2]>,
    /// Copying speed in bytes per ns: blocks of a frame's size, as many as a port has buffers, to
    /// as many others in turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memcpy_gbyte_s: Option<f64>,
    /// Bytes of all those blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memcpy_bytes: Option<u64>,
    /// Counts of the repeat.
    #[serde(flatten)]
    pub figures: Figures,
}

/// Counts of one repeat. A figure that the mode does not measure is absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Millions of frames sent per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_mpps: Option<f64>,
    /// Millions of frames received per second, all directions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mpps: Option<f64>,
    /// Percentage of the frames sent that did not arrive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_percent: Option<f64>,
    /// Percentage of the attempts to send that left the ring full. It is near 100 if the switch is
    /// the limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ring_full_percent: Option<f64>,
    /// Traversals in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traversal: Option<Traversals>,
}

/// Percentiles of the time from just before a frame is made available until it is found at the
/// other port.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Traversals {
    /// Frames that arrived.
    pub count: u64,
    /// Frames that did not arrive within a second.
    pub lost: u64,
    /// Median.
    pub p50_ns: f64,
    /// 90th percentile.
    pub p90_ns: f64,
    /// 99th percentile.
    pub p99_ns: f64,
    /// 99.9th percentile.
    pub p99_9_ns: f64,
    /// 99.99th percentile, if the generator reported it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_99_ns: Option<f64>,
}
