//! Facts about a VM that the checklist judges.

use taut_api::host::HostInfo;
use taut_api::vm::{LatencySensitivity, VmSpec, VmStatus};

/// Facts about a VM.
#[derive(Debug, Clone, Copy)]
pub struct VmFacts<'a> {
    /// Name of the VM.
    pub name: &'a str,
    /// The document that its user wrote.
    pub spec: &'a VmSpec,
    /// Its observed status.
    pub status: &'a VmStatus,
    /// The host on which it runs.
    pub host: &'a HostInfo,
}

/// Returns whether the VM's latency sensitivity is `high` or `high-ht`.
pub(super) fn is_high(spec: &VmSpec) -> bool {
    spec.latency_sensitivity != LatencySensitivity::Normal
}
