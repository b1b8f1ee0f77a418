//! Changes of a VM that exists: `PATCH /v1/vms/{name}`, and the options of `taut vm set`.
//!
//! One request carries any number of settings. The daemon applies all of them or none. A setting
//! that is absent keeps its value.

use std::collections::BTreeMap;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

use crate::coalescing::NicCoalescing;
use crate::link::WantedLink;
use crate::machine::AcceleratorChoice;
use crate::name::BadName;
use crate::network_io::NetworkAllocation;
use crate::placement::Numbers;
use crate::resources::{CpuReservation, MemoryReservation};
use crate::shaping::OwnShape;
use crate::shares::{CpuLimit, MemoryLimit, Shares};
use crate::vm::LatencySensitivity;
use crate::vmci::GroupChoice;
#[cfg(feature = "clap")]
use crate::word::SwitchArg as _;
use crate::word::removes;
use crate::{Bytes, Name};

/// Settings of a VM to change, all or none. Absent settings keep their values.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(default, deny_unknown_fields)]
pub struct VmPatch {
    /// Settings of network cards, by index from 0. They take effect at once, also on a running VM.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "clap", arg(skip))]
    pub nics: BTreeMap<usize, NicPatch>,
    /// Latency sensitivity and reservations.
    #[serde(skip_serializing_if = "is_default")]
    #[cfg_attr(feature = "clap", command(flatten))]
    pub latency: LatencyPatch,
    /// Shares and limits.
    #[serde(skip_serializing_if = "is_default")]
    #[cfg_attr(feature = "clap", command(flatten))]
    pub resources: ResourcePatch,
    /// vCPUs, memory, accelerator, idle vCPUs and limits of the disk.
    #[serde(skip_serializing_if = "is_default")]
    #[cfg_attr(feature = "clap", command(flatten))]
    pub machine: MachinePatch,
    /// Placement of vCPUs and memory.
    #[serde(skip_serializing_if = "is_default")]
    #[cfg_attr(feature = "clap", command(flatten))]
    pub placement: PlacementPatch,
    /// The VMCI device.
    #[serde(skip_serializing_if = "is_default")]
    #[cfg_attr(feature = "clap", command(flatten))]
    pub vmci: VmciPatch,
}

/// Settings of one network card.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(default, deny_unknown_fields)]
pub struct NicPatch {
    /// Port group of the card. The card of a running VM moves there at once.
    #[cfg_attr(feature = "clap", arg(long, value_name = "PORTGROUP", group = "setting"))]
    pub portgroup: Option<Name>,
    /// Link of the card: with down, the guest sees no carrier and the switch forwards nothing.
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "up|down", hide_possible_values = true, group = "setting")
    )]
    pub link: Option<WantedLink>,
    /// Interrupt and kick moderation of the card: disabled, static[:PACKETS],
    /// rbc[:INTERRUPTS_PER_SECOND], adapt, or default for the host's setting.
    #[cfg_attr(feature = "clap", arg(long, value_name = "SCHEME", group = "setting"))]
    pub coalescing: Option<NicCoalescing>,
    /// Large receive offload: merge TCP segments for the card.
    #[cfg_attr(feature = "clap", arg(long, on_or_off(), group = "setting"))]
    pub lro: Option<bool>,
    /// Shape what the guest sends: RATE, or average=RATE,peak=RATE,burst=SIZE, off (not shaped), or
    /// default (as its port group).
    #[cfg_attr(feature = "clap", arg(long, value_name = "SHAPE", group = "setting"))]
    pub to_switch: Option<OwnShape>,
    /// Shape what the guest receives: RATE, or average=RATE,peak=RATE,burst=SIZE, off (not shaped),
    /// or default (as its port group).
    #[cfg_attr(feature = "clap", arg(long, value_name = "SHAPE", group = "setting"))]
    pub to_guest: Option<OwnShape>,
    /// Part of each uplink for what the guest sends, while the vSwitch has network I/O control:
    /// shares=SHARES,reservation=RATE,limit=RATE, or default. It replaces the former one; what is
    /// left out is normal shares, no reservation and no limit.
    #[cfg_attr(feature = "clap", arg(long, value_name = "ALLOCATION", group = "setting"))]
    #[schema(value_type = Option<NetworkAllocation>)]
    pub uplink_allocation: Option<NetworkAllocation>,
}

/// Latency sensitivity and reservations. The daemon refuses the whole request if the host cannot
/// honour them; the error states what is missing. They take effect at once, also on a running VM;
/// the VM's status lists the parts that need a restart.
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(default, deny_unknown_fields)]
pub struct LatencyPatch {
    /// Latency sensitivity: normal, high (each vCPU owns a core) or high-ht (two vCPUs
    /// share a core). Takes effect at once.
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "LEVEL", hide_possible_values = true, group = "setting")
    )]
    pub latency_sensitivity: Option<LatencySensitivity>,
    /// CPU reserved for the VM: full, none, a percentage such as 50%, or MHz such as 2400MHz.
    #[cfg_attr(feature = "clap", arg(long, value_name = "AMOUNT", group = "setting"))]
    pub cpu_reservation: Option<CpuReservation>,
    /// Memory reserved for the VM: full, none, or a size. A full reservation is allocated and
    /// locked at the next start.
    #[cfg_attr(feature = "clap", arg(long, value_name = "SIZE", group = "setting"))]
    pub memory_reservation: Option<MemoryReservation>,
}

/// Shares of CPU, memory and disk, and limits of CPU and memory. They take effect at once, also on
/// a running VM. `MachinePatch` has the limits of the disk.
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(default, deny_unknown_fields)]
pub struct ResourcePatch {
    /// Weight of the VM when CPU is scarce: low, normal, high, or a number. Takes effect at once.
    #[cfg_attr(feature = "clap", arg(long, value_name = "SHARES", group = "setting"))]
    pub cpu_shares: Option<Shares>,
    /// Upper limit of the VM's CPU: none, a percentage such as 50%, or MHz. Takes effect at once.
    #[cfg_attr(feature = "clap", arg(long, value_name = "AMOUNT", group = "setting"))]
    pub cpu_limit: Option<CpuLimit>,
    /// Weight of the VM when memory is scarce: low, normal, high, or a number. Takes effect at
    /// once.
    #[cfg_attr(feature = "clap", arg(long, value_name = "SHARES", group = "setting"))]
    pub memory_shares: Option<Shares>,
    /// Upper limit of the VM's memory: none, or a size. Takes effect at once.
    #[cfg_attr(feature = "clap", arg(long, value_name = "SIZE", group = "setting"))]
    pub memory_limit: Option<MemoryLimit>,
    /// Weight of the VM's disk while the device below it is busy: low, normal, high, or a number.
    /// Takes effect at once.
    #[cfg_attr(feature = "clap", arg(long, value_name = "SHARES", group = "setting"))]
    pub disk_shares: Option<Shares>,
}

/// The virtual machine and its process. Limits of the disk take effect at once; the VM's status
/// lists the settings that need a restart.
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(default, deny_unknown_fields)]
pub struct MachinePatch {
    /// Number of vCPUs, 1 to 256, from the next start on.
    #[cfg_attr(feature = "clap", arg(long, value_name = "N", group = "setting"))]
    pub vcpus: Option<u32>,
    /// Size of the guest's memory, from the next start on.
    #[cfg_attr(feature = "clap", arg(long, value_name = "SIZE", group = "setting"))]
    pub memory: Option<Bytes>,
    /// Accelerator from the next start on: auto (KVM if a probe shows that it runs guests), kvm or
    /// tcg.
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "ACCELERATOR", hide_possible_values = true, group = "setting")
    )]
    pub accelerator: Option<AcceleratorChoice>,
    /// Behaviour of idle vCPUs.
    #[serde(skip_serializing_if = "is_default")]
    #[cfg_attr(feature = "clap", command(flatten))]
    pub halt: HaltPatch,
    /// Upper limit of bytes per second that the disk reads and writes: a size, or none (0). Takes
    /// effect at once.
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "SIZE", value_parser = bytes_or_none, group = "setting")
    )]
    pub disk_bandwidth: Option<Bytes>,
    /// Upper limit of disk operations per second: a number, or none (0). Takes effect at once.
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "N", value_parser = number_or_none, group = "setting")
    )]
    pub disk_iops: Option<u64>,
}

/// Behaviour of idle vCPUs, setting by setting.
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(default, deny_unknown_fields)]
pub struct HaltPatch {
    /// An idle vCPU gives its pCPU away (ESX: monitor_control.halt_desched). With off, it halts
    /// inside the guest while its pCPUs are exclusive.
    #[cfg_attr(
        feature = "clap",
        arg(
            long = "halt-desched",
            value_name = "on|off|default",
            hide_possible_values = true,
            group = "setting"
        )
    )]
    pub desched: Option<Switch>,
    /// An idle vCPU spins before it halts (ESX: monitor.idleLoopSpinBeforeHalt).
    #[cfg_attr(
        feature = "clap",
        arg(
            long = "halt-spin",
            value_name = "on|off|default",
            hide_possible_values = true,
            group = "setting"
        )
    )]
    pub spin: Option<Switch>,
    /// Shortest time that it spins, in microseconds (ESX: monitor.idleLoopMinSpinUS): a number, or
    /// default (0) for 100.
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "US", value_parser = count_or_default, group = "setting")
    )]
    pub min_spin_us: Option<u32>,
}

/// A setting that can be on, off, or left to taut's own choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum Switch {
    /// On.
    On,
    /// Off.
    Off,
    /// Not set: KVM or the plan decides.
    Default,
}

impl Switch {
    /// Returns the value as a VM's document keeps it: absent for [`Switch::Default`].
    pub const fn value(self) -> Option<bool> {
        match self {
            Self::On => Some(true),
            Self::Off => Some(false),
            Self::Default => None,
        }
    }
}

/// Placement of vCPUs and memory.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(default, deny_unknown_fields)]
pub struct PlacementPatch {
    /// NUMA nodes of the host for vCPUs and memory: any, or a list such as 0-1. Memory of a running
    /// VM is moved there, unless it is on huge pages or in several virtual nodes.
    #[cfg_attr(feature = "clap", arg(long = "numa-nodes", value_name = "NODES", group = "setting"))]
    pub nodes: Option<Numbers>,
    /// pCPUs that the vCPUs run on, exclusive or not: any, or a list such as 2,4-7. Takes effect at
    /// once.
    #[cfg_attr(feature = "clap", arg(long = "cpu-affinity", value_name = "CPUS", group = "setting"))]
    pub cpus: Option<Numbers>,
    /// Upper limit of vCPUs per virtual NUMA node, from the next start on: a number, or none (0).
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "N", value_parser = count_or_none, group = "setting")
    )]
    pub vcpus_per_node: Option<u32>,
}

/// The VMCI device. It is added and removed with the VM's next start, and so is its memory for
/// queue pairs; the other settings take effect at once.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(default, deny_unknown_fields)]
pub struct VmciPatch {
    /// Adds (on) or removes (off) the VMCI device. The guest sees a new one after its next start. A
    /// removed one is cut off at once, and its settings are given up.
    #[cfg_attr(feature = "clap", arg(long = "vmci", on_or_off(), group = "setting"))]
    pub present: Option<bool>,
    /// Context ID, unique on the host: a number from 3 on, or default (0) for one that is free. The
    /// device of a running VM is replaced, and its connections are reset.
    #[cfg_attr(
        feature = "clap",
        arg(long = "vmci-cid", value_name = "CID", value_parser = count_or_default, group = "setting")
    )]
    pub cid: Option<u32>,
    /// VMCI domains of the VM: a list such as A,B, or none. VMs with a common domain may talk.
    #[cfg_attr(feature = "clap", arg(long = "vmci-domains", value_name = "A,B|none", group = "setting"))]
    pub domains: Option<Domains>,
    /// Lets the VM talk over VMCI to every other unrestricted VM.
    #[cfg_attr(feature = "clap", arg(long = "vmci-unrestricted", on_or_off(), group = "setting"))]
    pub unrestricted: Option<bool>,
    /// Upper limit of VMCI connections that the VM has opened: a number, or default (0) for 4096.
    #[cfg_attr(
        feature = "clap",
        arg(long = "vmci-connections", value_name = "N", value_parser = count_or_default, group = "setting")
    )]
    pub connections: Option<u32>,
    /// Upper limit of VMCI connections that are not accepted yet: a number, or default (0) for 256.
    #[cfg_attr(
        feature = "clap",
        arg(long = "vmci-half-open", value_name = "N", value_parser = count_or_default, group = "setting")
    )]
    pub half_open: Option<u32>,
    /// Group of users on the host that may connect to the VM over VMCI, and listen for it: a name
    /// or number, or none.
    #[cfg_attr(feature = "clap", arg(long = "vmci-group", value_name = "GROUP|none", group = "setting"))]
    pub group: Option<GroupChoice>,
    /// Memory for queue pairs: a power of two from 4MiB to 1GiB, or none (0). It counts beside the
    /// guest's memory. A running VM gets it at once if it has room for it and none yet, else with
    /// its next start.
    #[cfg_attr(
        feature = "clap",
        arg(long = "vmci-queue-pairs", value_name = "SIZE|none", value_parser = bytes_or_none, group = "setting")
    )]
    pub queue_pairs: Option<Bytes>,
    /// Room for memory for queue pairs that is added while the VM runs, from the next start on: the
    /// most that can be added, a power of two from 4MiB to 1GiB, or none (0).
    #[cfg_attr(
        feature = "clap",
        arg(
            long = "vmci-queue-pairs-room",
            value_name = "SIZE|none",
            value_parser = bytes_or_none,
            group = "setting"
        )
    )]
    pub queue_pairs_room: Option<Bytes>,
}

/// All VMCI domains of a VM. The command line writes `A,B`, or `none`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
pub struct Domains(pub Vec<Name>);

impl FromStr for Domains {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        if removes(text) {
            return Ok(Self::default());
        }
        text.split(',').map(str::parse).collect::<Result<_, _>>().map(Self)
    }
}

impl VmPatch {
    /// Returns whether admission control decides on the request: it changes latency
    /// sensitivity, reservations, shares, limits of CPU and memory, placement, vCPUs, memory or
    /// memory for queue pairs. Limits of the disk do not count.
    pub fn needs_admission(&self) -> bool {
        !is_default(&self.latency)
            || !is_default(&self.resources)
            || !is_default(&self.placement)
            || self.machine.vcpus.is_some()
            || self.machine.memory.is_some()
            || self.vmci.queue_pairs.is_some()
    }
}

/// Returns whether a part of a request changes nothing.
pub fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[cfg(feature = "clap")]
fn bytes_or_none(text: &str) -> Result<Bytes, String> {
    if removes(text) { Ok(Bytes(0)) } else { text.parse().map_err(|error| format!("{error}")) }
}

#[cfg(feature = "clap")]
fn number_or_none(text: &str) -> Result<u64, &'static str> {
    if removes(text) { Ok(0) } else { text.parse().map_err(|_| "write a number, or none") }
}

/// Reads a number from 1 on, or 0 for `none`.
#[cfg(feature = "clap")]
fn count_or_none(text: &str) -> Result<u32, &'static str> {
    if removes(text) { Ok(0) } else { text.parse().map_err(|_| "write a number, or none") }
}

/// Reads a number from 1 on, or 0 for `default`.
#[cfg(feature = "clap")]
fn count_or_default(text: &str) -> Result<u32, &'static str> {
    match text {
        "default" => Ok(0),
        number => number.parse().map_err(|_| "write a number, or default"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_carries_only_what_it_changes() {
        assert_eq!(serde_json::to_string(&VmPatch::default()).unwrap(), "{}");
        let text = r#"{"nics":{"0":{"lro":true},"10":{"coalescing":"adapt"}},"latency":{"cpu_reservation":"full"},"machine":{"halt":{"spin":"default"},"disk_iops":0},"vmci":{"cid":7,"domains":[],"group":"none","queue_pairs":"16MiB"}}"#;
        let patch: VmPatch = serde_json::from_str(text).unwrap();
        assert_eq!(patch.nics[&10].coalescing, Some("adapt".parse().unwrap()));
        assert_eq!(serde_json::to_string(&patch).unwrap(), text);
    }

    #[test]
    fn unknown_settings_are_refused_at_every_level() {
        for text in [
            r#"{"nic":{}}"#,
            r#"{"nics":{"x":{}}}"#,
            r#"{"nics":{"0":{"lor":true}}}"#,
            r#"{"machine":{"halt":{"spni":"on"}}}"#,
            r#"{"vmci":{"cdi":7}}"#,
        ] {
            assert!(serde_json::from_str::<VmPatch>(text).is_err(), "{text}");
        }
    }
}
