//! The host: settings, topology, accelerator.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::coalescing::BadCoalescing;
use crate::tune::{BadTune, TuneMode, TuneThreshold, tune_interval};
use crate::{Bytes, Coalescing};

/// Settings of the host, under ESX's names (`/v1/host/settings`, `taut host set`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HostSettings {
    /// Moderation of vNICs that follow the host: `disabled`, `static`, `rbc` or `adapt`.
    #[serde(rename = "Net.CoalesceScheme")]
    pub coalesce_scheme: String,
    /// Parameter of the scheme: packets for `static` (1 to 64), interrupts per second for `rbc`
    /// (100 to 100000). Empty stands for the scheme's default (64, 4000).
    #[serde(rename = "Net.CoalesceParams")]
    pub coalesce_params: String,
    /// Large receive offload, for vNICs that enable it.
    #[serde(rename = "Net.Vmxnet3SwLRO")]
    pub lro: Toggle,
    /// Dense mode: `default` (never) or `dense` (while the load is above all thresholds).
    #[serde(rename = "Net.NetTuneHostMode")]
    pub tune_mode: TuneMode,
    /// Seconds between two tests of the load for dense mode, 1 to 3600.
    #[serde(rename = "Net.NetTuneInterval")]
    pub tune_interval: String,
    /// Thresholds of dense mode: running VMs, their vCPUs, and percent of all pCPUs' time; `n` is
    /// the number of pCPUs.
    #[serde(rename = "Net.NetTuneThreshold")]
    pub tune_threshold: String,
}

/// The description of one of the host's settings, for users.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostSetting {
    /// Name of the setting.
    pub key: &'static str,
    /// Values that it accepts.
    pub allowed: &'static str,
    /// Effect of the setting.
    pub effect: &'static str,
}

/// A switch, in ESX's digits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum Toggle {
    /// Off.
    #[serde(rename = "0")]
    Off,
    /// On.
    #[default]
    #[serde(rename = "1")]
    On,
}

impl Default for HostSettings {
    fn default() -> Self {
        Self {
            coalesce_scheme: "rbc".to_owned(),
            coalesce_params: String::new(),
            lro: Toggle::On,
            tune_mode: TuneMode::Default,
            tune_interval: "60".to_owned(),
            tune_threshold: TuneThreshold::default().to_string(),
        }
    }
}

impl HostSettings {
    /// Descriptions of all settings, in their order.
    pub const ALL: [HostSetting; 6] = [
        HostSetting {
            key: "Net.CoalesceScheme",
            allowed: "disabled, static, rbc, adapt",
            effect: "interrupt coalescing of cards that follow the host",
        },
        HostSetting {
            key: "Net.CoalesceParams",
            allowed: "static: 1 to 64; rbc: 100 to 100000; empty",
            effect: "packets (64) or interrupts a second (4000) of the scheme",
        },
        HostSetting {
            key: "Net.Vmxnet3SwLRO",
            allowed: "0, 1",
            effect: "large receive offload, off or on, for cards that enable it",
        },
        HostSetting {
            key: "Net.NetTuneHostMode",
            allowed: "default, dense",
            effect: "dense mode: never, or while the load reaches all thresholds",
        },
        HostSetting {
            key: "Net.NetTuneInterval",
            allowed: "1 to 3600",
            effect: "seconds between two tests of the load",
        },
        HostSetting {
            key: "Net.NetTuneThreshold",
            allowed: "VMS VCPUS PERCENT",
            effect: "running VMs, their vCPUs, use of all pCPUs; 2n is twice the pCPUs",
        },
    ];

    /// Returns scheme and parameter as one value.
    ///
    /// # Errors
    /// If they do not match. Stored settings always do.
    pub fn coalescing(&self) -> Result<Coalescing, BadCoalescing> {
        Coalescing::of(&self.coalesce_scheme, &self.coalesce_params)
    }

    /// Returns the seconds between two tests of the load.
    ///
    /// # Errors
    /// If the text is not such a number. Stored settings always are.
    pub fn tune_interval(&self) -> Result<u32, BadTune> {
        tune_interval(&self.tune_interval)
    }

    /// Returns the thresholds of dense mode.
    ///
    /// # Errors
    /// If the text is not three thresholds. Stored settings always are.
    pub fn tune_threshold(&self) -> Result<TuneThreshold, BadTune> {
        self.tune_threshold.parse()
    }
}

/// Answer to `taut host show`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HostInfo {
    /// Host name.
    pub hostname: String,
    /// Kernel release, as `uname -r` prints it.
    pub kernel: String,
    /// Distribution, from os-release.
    pub os: String,
    /// Model name of the first CPU.
    pub cpu_model: String,
    /// On-line pCPUs, by number.
    pub cpus: Vec<Cpu>,
    /// NUMA nodes that have CPUs or memory, by number.
    pub nodes: Vec<NumaNode>,
    /// Total memory (`MemTotal`).
    pub memory_total: Bytes,
    /// Available memory (`MemAvailable`) when the host was read.
    pub memory_available: Bytes,
    /// How vCPUs run here, and why.
    pub accelerator: Accelerator,
    /// The QEMU that VMs are started with, if one was found.
    pub qemu: Option<QemuInfo>,
}

/// One pCPU (logical CPU) and its place in the topology.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Cpu {
    /// Kernel's CPU number.
    pub id: u32,
    /// Physical package (socket).
    pub package: u32,
    /// Core within the package; SMT siblings share it.
    pub core: u32,
    /// NUMA node.
    pub node: u32,
    /// Last-level cache; pCPUs with the same number share one.
    pub llc: u32,
}

/// One NUMA node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NumaNode {
    /// Kernel's node number.
    pub id: u32,
    /// Memory on this node.
    pub memory: Bytes,
}

/// The accelerator, found by starting a guest rather than by looking for `/dev/kvm`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Accelerator {
    /// Accelerator that VMs are started with.
    pub kind: AcceleratorKind,
    /// The observation behind the decision, as a sentence.
    pub why: String,
}

/// KVM or emulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum AcceleratorKind {
    /// Hardware virtualization.
    Kvm,
    /// QEMU's emulation.
    Tcg,
}

/// The QEMU that VMs are started with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QemuInfo {
    /// Path of the binary.
    pub path: String,
    /// Version as `major.minor.micro`.
    pub version: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_setting_is_described_under_its_name() {
        let settings = serde_json::to_value(HostSettings::default()).unwrap();
        let mut described: Vec<_> = HostSettings::ALL.iter().map(|setting| setting.key).collect();
        described.sort_unstable();
        let mut stored: Vec<_> = settings.as_object().unwrap().keys().map(String::as_str).collect();
        stored.sort_unstable();
        assert_eq!(described, stored);
    }
}
