//! What of a VM's settings is decided when its process starts.

use serde::{Deserialize, Serialize};
use taut_api::host::{Accelerator, AcceleratorKind};
use taut_api::machine::AcceleratorChoice;
use taut_api::vm::{VmKind, VmSpec};

use super::MemoryTuning;

/// What a VM's process was, or is to be, started with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tuning {
    /// Memory is allocated at once and locked (SPEC LS-5).
    pub locked: bool,
    /// An idle vCPU halts without leaving the guest (SPEC LS-6).
    pub cpu_pm: bool,
    /// The guest is told that its vCPUs have pCPUs of their own: a Linux guest then polls by itself before it halts (haltpoll),
    /// and spins for locks.
    pub hint_dedicated: bool,
    /// The guest may switch the host's halt polling off while it polls by itself.
    pub poll_control: bool,
    /// Where memory lies, and on which pages (SPEC LS-5).
    pub memory: MemoryTuning,
}

impl Tuning {
    /// As the VM needs it: locked when all of its memory is reserved; halting by itself under KVM when its pCPUs are its own,
    /// since the host sees such a guest always busy, and it does not ask for the contrary.
    pub fn of(spec: &VmSpec, accelerator: &Accelerator, exclusive: bool) -> Self {
        let qemu = spec.kind == VmKind::Qemu;
        let kvm = qemu && accelerator.kind == AcceleratorKind::Kvm;
        Self {
            locked: qemu && spec.memory_reservation.of(spec.memory) == spec.memory,
            cpu_pm: kvm && exclusive && spec.halt.desched != Some(true),
            hint_dedicated: kvm && exclusive && spec.halt.spin != Some(false),
            poll_control: kvm && spec.halt.spin == Some(true),
            // Whoever starts the VM knows the host's nodes.
            memory: MemoryTuning::default(),
        }
    }
}

/// What a VM is started with: its own choice, or what was found to run guests on this host.
pub fn accelerator(spec: &VmSpec, host: &Accelerator) -> Accelerator {
    let kind = match spec.accelerator {
        AcceleratorChoice::Auto => return host.clone(),
        AcceleratorChoice::Kvm => AcceleratorKind::Kvm,
        AcceleratorChoice::Tcg => AcceleratorKind::Tcg,
    };
    Accelerator { kind, why: format!("the VM asks for it; of this host: {}", host.why) }
}

/// The CPU that the guest sees under KVM. `works`: a probe has found that KVM runs guests here.
pub(super) fn kvm_cpu(tuning: Tuning, works: bool) -> String {
    // Where KVM does not run guests it may lack a register that QEMU then insists on.
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
