//! VMCI sockets of VMs over a period.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::fabric::counters::VmciCounters;

/// `GET /v1/statistics/sockets`: VMCI sockets of one VM within the period.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SocketStatistics {
    /// Name of the VM. It may be gone meanwhile.
    pub vm: String,
    /// Time that the averages cover, in ms.
    pub covered_ms: u64,
    /// End of that time, in ms since the Unix epoch.
    pub to_ms: u64,
    /// Connections that were open, on average. Absent if nobody counted them in the period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<f64>,
    /// Ends of connections at the guest that exchanged their bytes by rings, on average.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attached: Option<f64>,
    /// Connections opened per second, from either side.
    pub opened_per_s: f64,
    /// Bits of payload delivered to the guest per second, by packets and rings.
    pub rx_bits_per_s: f64,
    /// Bits of payload taken from the guest per second, by packets and rings.
    pub tx_bits_per_s: f64,
    /// Packets delivered to the guest per second.
    pub rx_packets_per_s: f64,
    /// Packets taken from the guest per second.
    pub tx_packets_per_s: f64,
    /// Counts of that time. `connections` and `attached`, which are no counters, are 0.
    pub counted: VmciCounters,
}
