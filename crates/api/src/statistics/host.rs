//! Averages of the host over a period.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `GET /v1/statistics/host`: averages of the host over the period. A value is absent if the kernel
/// does not tell it, or if there are no two samples yet.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HostStatistics {
    /// Time that the averages cover, in ms: 0 without two samples.
    pub covered_ms: u64,
    /// End of that time, in ms since the Unix epoch.
    pub to_ms: u64,
    /// Time in which pCPUs ran something, in percent of all pCPUs' time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_busy_percent: Option<f64>,
    /// Time in which pCPUs had nothing to run, in percent of all pCPUs' time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_idle_percent: Option<f64>,
    /// Time in which a hypervisor below this host ran something else on its pCPUs, in percent of
    /// all pCPUs' time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_steal_percent: Option<f64>,
    /// Time in which some task of the host waited for a pCPU, in percent (pressure stall
    /// information of Linux, `some`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_waiting_percent: Option<f64>,
    /// Memory that programs could not have had without swapping, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_used_bytes: Option<f64>,
    /// Memory that programs could have had (`MemAvailable`), in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_available_bytes: Option<f64>,
    /// Swap space in use, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swap_used_bytes: Option<f64>,
    /// Bytes that were read from swap per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swap_in_bytes_per_s: Option<f64>,
    /// Bytes that were written to swap per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swap_out_bytes_per_s: Option<f64>,
}
