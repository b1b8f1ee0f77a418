//! What of a VM's latency settings is decided when its process starts.

use serde::{Deserialize, Serialize};
use taut_api::host::{Accelerator, AcceleratorKind};
use taut_api::vm::{VmKind, VmSpec};

/// What a VM's process was, or is to be, started with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tuning {
    /// Memory is allocated at once and locked (SPEC LS-5).
    pub locked: bool,
    /// An idle vCPU halts without leaving the guest (SPEC LS-6).
    pub cpu_pm: bool,
}

impl Tuning {
    /// As the VM needs it: locked when all of its memory is reserved; halting by itself under KVM when its pCPUs are its own,
    /// since the host sees such a guest always busy.
    pub fn of(spec: &VmSpec, accelerator: &Accelerator, exclusive: bool) -> Self {
        let qemu = spec.kind == VmKind::Qemu;
        Self {
            locked: qemu && spec.memory_reservation.of(spec.memory) == spec.memory,
            cpu_pm: qemu && exclusive && accelerator.kind == AcceleratorKind::Kvm,
        }
    }
}
