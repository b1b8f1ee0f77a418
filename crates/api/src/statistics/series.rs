//! Rates step by step over a period, for charts.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Kind of a subject of statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Subject {
    /// A port of the fabric. Its name is its owner, as in `GET /v1/ports`.
    Port,
    /// An uplink: the port with the owner `uplink/NAME`.
    Uplink,
    /// A VM, whoever has started it.
    Vm,
    /// The VMCI sockets of a VM. Their name is that of the VM.
    Sockets,
    /// The host. Its name is `host`.
    Host,
}

impl Subject {
    /// Returns the word for it in queries and messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Port => "port",
            Self::Uplink => "uplink",
            Self::Vm => "vm",
            Self::Sockets => "sockets",
            Self::Host => "host",
        }
    }
}

/// `GET /v1/statistics/series`: rates of one subject over the period.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Series {
    /// Kind of the subject.
    pub subject: Subject,
    /// Its name now, or its last one.
    pub name: String,
    /// Begin of the period, in ms since the Unix epoch.
    pub from_ms: u64,
    /// End of the period, in ms since the Unix epoch.
    pub to_ms: u64,
    /// Distance of two points in ms: 1000 or more. Where points are further apart than that,
    /// nobody took samples, and a chart has a gap.
    pub step_ms: u64,
    /// Meaning of the values of each point, in their order.
    pub columns: Vec<Column>,
    /// The points, at most 301, from the oldest to the newest.
    pub points: Vec<SeriesPoint>,
}

/// Averages of one step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SeriesPoint {
    /// End of the step, in ms since the Unix epoch.
    pub to_ms: u64,
    /// Time that the averages cover, in ms: a step, or less beside a gap and in the newest point.
    pub covered_ms: u64,
    /// A value for each column; null if it is not known.
    pub values: Vec<Option<f64>>,
}

/// Meaning of a value in a series. "rx" and "tx" are the guest's. An uplink receives from the
/// vSwitch what it sends outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Column {
    /// Bits delivered to the guest, or through the uplink, per second.
    RxBitsPerS,
    /// Bits taken from the guest, or from outside, per second.
    TxBitsPerS,
    /// Frames delivered to the guest, or through the uplink, per second.
    RxFramesPerS,
    /// Frames taken from the guest, or from outside, per second.
    TxFramesPerS,
    /// Frames for the port that were dropped, per second.
    RxDropsPerS,
    /// Frames from the port that were dropped, per second.
    TxDropsPerS,
    /// Bits that the port has sent through uplinks, or that the uplink has sent, per second, as
    /// they are on the wire.
    WireTxBitsPerS,
    /// Bits that the port has received from uplinks, or that the uplink has received, per second,
    /// as they are on the wire.
    WireRxBitsPerS,
    /// Connections of VMCI sockets that were open.
    Connections,
    /// Ends of connections at the guest that exchanged their bytes by rings.
    Attached,
    /// Connections of VMCI sockets opened per second.
    OpenedPerS,
    /// Time that all vCPUs ran, in percent of one pCPU.
    RunPercent,
    /// Time that all vCPUs were ready to run and waited, in percent.
    ReadyPercent,
    /// Time that the VM's other threads ran, in percent.
    OthersPercent,
    /// Time in which the VM's CPU limit kept it from running, in percent.
    ThrottledPercent,
    /// Memory that the VM's process had, in bytes.
    MemoryBytes,
    /// Memory of the VM's process that was swapped out, in bytes.
    SwappedBytes,
    /// Bytes that the VM's process has read from disks per second.
    DiskReadBytesPerS,
    /// Bytes that the VM's process has written to disks per second.
    DiskWrittenBytesPerS,
    /// Time in which pCPUs ran something, in percent of all pCPUs' time.
    CpuBusyPercent,
    /// Time in which pCPUs had nothing to run, in percent of all pCPUs' time.
    CpuIdlePercent,
    /// Time in which a hypervisor below the host ran something else, in percent.
    CpuStealPercent,
    /// Time in which some task of the host waited for a pCPU, in percent.
    CpuWaitingPercent,
    /// Memory of the host that was not available, in bytes.
    MemoryUsedBytes,
    /// Memory of the host that was available, in bytes.
    MemoryAvailableBytes,
    /// Swap space in use, in bytes.
    SwapUsedBytes,
    /// Bytes that the host has read from swap per second.
    SwapInBytesPerS,
    /// Bytes that the host has written to swap per second.
    SwapOutBytesPerS,
}
