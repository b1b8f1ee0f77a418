//! What a VM's process is told about how it runs: accelerator, idle vCPUs, the disk's limits.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Bytes;

/// How a VM's code is run. The host's choice, made by a probe that runs a guest, unless the VM says otherwise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum AcceleratorChoice {
    /// KVM where it runs guests, else emulation.
    #[default]
    Auto,
    /// KVM, also where the probe says that it does not run guests.
    Kvm,
    /// Emulation.
    Tcg,
}

impl AcceleratorChoice {
    /// Is it left to the host?
    pub fn is_auto(&self) -> bool {
        *self == Self::Auto
    }
}

/// Execution of the vCPUs of a running VM.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum VmAccelerator {
    /// KVM.
    Kvm,
    /// Emulation by QEMU.
    #[default]
    Tcg,
    /// A microguest, whose vCPUs are threads of the host.
    Native,
}

impl std::fmt::Display for VmAccelerator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
            Self::Native => "native",
        })
    }
}

/// What an idle vCPU does (SPEC BP, LS-6): the table `[halt]` of a VM file. Each key is ESX's; what is absent is KVM's and the
/// plan's own choice. Under emulation none of them has an effect.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HaltSpec {
    /// Does an idle vCPU give its pCPU away (`monitor_control.halt_desched`)? With `false` it halts inside the guest's own time,
    /// once its pCPUs are its own; that is also what latency-sensitive VMs do that do not say. From the VM's next start on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub desched: Option<bool>,
    /// Does it spin before it halts (`monitor.idleLoopSpinBeforeHalt`)? KVM then polls on the host, and a Linux guest may do so
    /// itself (haltpoll). The guest's part is from its next start on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spin: Option<bool>,
    /// How long at least, in microseconds, 1 to 10,000 (`monitor.idleLoopMinSpinUS`, ESX: 100). KVM's halt polling is one
    /// setting for the host: the longest that a running VM asks for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_spin_us: Option<u32>,
}

/// ESX's own spinning, in microseconds.
pub const MIN_SPIN_US: u32 = 100;
/// Longest spinning that can be asked for, in microseconds.
pub const MOST_SPIN_US: u32 = 10_000;

impl HaltSpec {
    /// Does it say nothing?
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// How long a halted vCPU is polled for at least, in nanoseconds; nothing when that is not asked for.
    pub fn poll_ns(&self) -> Option<u64> {
        let us = self.min_spin_us.unwrap_or(MIN_SPIN_US);
        (self.spin == Some(true)).then_some(u64::from(us) * 1000)
    }
}

/// The most that a disk is read and written (VN-14), reading and writing together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DiskLimits {
    /// Bytes in a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<Bytes>,
    /// Operations in a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iops: Option<u64>,
}

impl DiskLimits {
    /// Is there none?
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polling_is_asked_for_by_spinning_only() {
        let halt = |text: &str| serde_json::from_str::<HaltSpec>(text).unwrap().poll_ns();
        assert_eq!(halt(r#"{"spin": true}"#), Some(100_000), "ESX's own");
        assert_eq!(halt(r#"{"spin": true, "min_spin_us": 7}"#), Some(7_000));
        assert_eq!(halt(r#"{"min_spin_us": 7}"#), None);
        assert_eq!(halt(r#"{"spin": false, "min_spin_us": 7}"#), None);
    }
}
