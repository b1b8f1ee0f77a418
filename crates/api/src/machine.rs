//! Settings of a VM's process: accelerator, idle vCPUs, limits of the disk.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Bytes;

/// Memory for translated code of an emulated VM. With QEMU's default (1 GiB), fifty idle guests
/// would use up the host. Guests boot and run at the same speed with this value.
pub const TCG_CACHE: Bytes = Bytes::mib(64);

/// How a VM's code is run. `auto` leaves the choice to the host, which probes KVM with a small
/// guest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum AcceleratorChoice {
    /// KVM if it runs guests, else emulation
    #[default]
    Auto,
    /// KVM, even if the probe says that it does not run guests
    Kvm,
    /// Emulation
    Tcg,
}

impl AcceleratorChoice {
    /// Returns whether the host decides.
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

/// Behaviour of idle vCPUs: the table `[halt]` of a VM file. The keys are ESX's. KVM and the plan
/// decide what is absent. Under emulation the keys have no effect.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HaltSpec {
    /// True if an idle vCPU gives its pCPU away (ESX: `monitor_control.halt_desched`). With `false`
    /// it halts inside the guest while its pCPUs are exclusive; latency-sensitive VMs do so by
    /// default. Takes effect at the VM's next start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub desched: Option<bool>,
    /// True if a vCPU spins before it halts (ESX: `monitor.idleLoopSpinBeforeHalt`). KVM then polls
    /// on the host, and a Linux guest may poll by itself (haltpoll). The guest's part takes effect
    /// at its next start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spin: Option<bool>,
    /// Shortest spinning time in microseconds, 1 to 10,000 (ESX: `monitor.idleLoopMinSpinUS`, 100).
    /// KVM has one setting for the host: the longest time that a running VM asks for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_spin_us: Option<u32>,
}

/// Spinning time of ESX, in microseconds.
pub const MIN_SPIN_US: u32 = 100;
/// Longest spinning time, in microseconds.
pub const MOST_SPIN_US: u32 = 10_000;

impl HaltSpec {
    /// Returns whether no key is set.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the shortest polling time for a halted vCPU in nanoseconds; `None` without spinning.
    pub fn poll_ns(&self) -> Option<u64> {
        let us = self.min_spin_us.unwrap_or(MIN_SPIN_US);
        (self.spin == Some(true)).then_some(u64::from(us) * 1000)
    }
}

/// Upper limits of a disk, reading and writing together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DiskLimits {
    /// Bytes per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<Bytes>,
    /// Operations per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iops: Option<u64>,
}

impl DiskLimits {
    /// Returns whether there is no limit.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kvm_polls_only_for_vms_that_spin() {
        let halt = |text: &str| serde_json::from_str::<HaltSpec>(text).unwrap().poll_ns();
        assert_eq!(halt(r#"{"spin": true}"#), Some(100_000), "ESX's own");
        assert_eq!(halt(r#"{"spin": true, "min_spin_us": 7}"#), Some(7_000));
        assert_eq!(halt(r#"{"min_spin_us": 7}"#), None);
        assert_eq!(halt(r#"{"spin": false, "min_spin_us": 7}"#), None);
    }
}
