//! Settings of a VM that are decided when its process starts.

use serde::{Deserialize, Serialize};
use taut_api::host::{Accelerator, AcceleratorKind};
use taut_api::machine::AcceleratorChoice;
use taut_api::vm::{VmKind, VmSpec};

use super::MemoryTuning;

/// Settings that a VM's process was started with, or is to be started with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tuning {
    /// True if memory is allocated at the start and locked (LS-5).
    pub locked: bool,
    /// True if an idle vCPU halts without leaving the guest (LS-6).
    pub cpu_pm: bool,
    /// True if the guest is told that its vCPUs have exclusive pCPUs. A Linux guest then polls
    /// before it halts (haltpoll) and spins for locks.
    pub hint_dedicated: bool,
    /// True if the guest may disable the host's halt polling while it polls itself.
    pub poll_control: bool,
    /// Pages and NUMA nodes of the memory (LS-5).
    pub memory: MemoryTuning,
}

impl Tuning {
    /// The settings of a VM. Memory is locked when all of it is reserved. Under KVM with exclusive
    /// pCPUs, vCPUs halt inside the guest unless the VM disables that; the host then sees the pCPUs
    /// as always busy.
    pub fn of(spec: &VmSpec, accelerator: &Accelerator, exclusive: bool) -> Self {
        let qemu = spec.kind == VmKind::Qemu;
        let kvm = qemu && accelerator.kind == AcceleratorKind::Kvm;
        Self {
            locked: qemu && spec.memory_reservation.of(spec.memory) == spec.memory,
            cpu_pm: kvm && exclusive && spec.halt.desched != Some(true),
            hint_dedicated: kvm && exclusive && spec.halt.spin != Some(false),
            poll_control: kvm && spec.halt.spin == Some(true),
            // The caller knows the host's nodes and sets this.
            memory: MemoryTuning::default(),
        }
    }
}

/// The accelerator of a VM: its own choice, or that of the host.
pub fn accelerator(spec: &VmSpec, host: &Accelerator) -> Accelerator {
    let kind = match spec.accelerator {
        AcceleratorChoice::Auto => return host.clone(),
        AcceleratorChoice::Kvm => AcceleratorKind::Kvm,
        AcceleratorChoice::Tcg => AcceleratorKind::Tcg,
    };
    Accelerator { kind, why: format!("chosen by the VM; on this host: {}", host.why) }
}

/// The CPU model under KVM. `works`: whether the probe found that KVM runs guests on this host.
pub(super) fn kvm_cpu(tuning: Tuning, works: bool) -> String {
    // A KVM that does not run guests may lack a register that QEMU requires.
    let mut cpu = if works { "host" } else { "host,-arch-capabilities" }.to_owned();
    for (wanted, feature) in
        [(tuning.hint_dedicated, "kvm-hint-dedicated"), (tuning.poll_control, "kvm-poll-control")]
    {
        if wanted {
            cpu += &format!(",{feature}=on");
        }
    }
    cpu
}
