//! Virtual machines: what the user writes, and what is observed.

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::coalescing::NicCoalescing;
use crate::fabric::counters::VmciCounters;
use crate::latency::LatencyStatus;
use crate::link::Link;
use crate::machine::{AcceleratorChoice, DiskLimits, HaltSpec};
use crate::passthrough::PassthroughSpec;
use crate::placement::PlacementSpec;
use crate::resources::{CpuResources, MemoryReservation};
use crate::shaping::Shaping;
use crate::shares::{MemoryLimit, ResourceStatus, Shares};
use crate::vmci::{Cid, VmciSpec};
use crate::{Bytes, Coalescing, MacAddr, Name, QueuePairs};

/// A VM as its file describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VmSpec {
    /// Who runs it.
    #[serde(default)]
    pub kind: VmKind,
    /// How its code is run: `auto` (KVM where a probe has found that it runs guests, else emulation), `kvm` or `tcg`.
    #[serde(default, skip_serializing_if = "AcceleratorChoice::is_auto")]
    pub accelerator: AcceleratorChoice,
    /// Virtual CPUs, 1 to 256.
    #[serde(default = "one")]
    pub vcpus: u32,
    /// Guest memory.
    #[serde(default = "default_memory")]
    pub memory: Bytes,
    /// Memory kept for it (LS-2, LS-5).
    #[serde(default, skip_serializing_if = "MemoryReservation::is_none")]
    pub memory_reservation: MemoryReservation,
    /// The most of the host's memory that it gets (VN-14).
    #[serde(default, skip_serializing_if = "MemoryLimit::is_none")]
    pub memory_limit: MemoryLimit,
    /// How much it counts when there is too little memory (VN-14).
    #[serde(default, skip_serializing_if = "Shares::is_default")]
    pub memory_shares: Shares,
    /// CPU kept for it (LS-3), its limit and its shares (VN-14).
    #[serde(default, skip_serializing_if = "CpuResources::is_default")]
    pub cpu: CpuResources,
    /// Where its vCPUs and memory are to be (LS-5).
    #[serde(default, skip_serializing_if = "PlacementSpec::is_default")]
    pub placement: PlacementSpec,
    /// What its idle vCPUs do (BP).
    #[serde(default, skip_serializing_if = "HaltSpec::is_default")]
    pub halt: HaltSpec,
    /// Direct kernel boot. Either this or a disk; a micro VM has neither.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<Boot>,
    /// The system disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<Disk>,
    /// Virtual network cards in the guest's order (VN-1: ten or more).
    #[serde(default, rename = "nic", skip_serializing_if = "Vec::is_empty")]
    pub nics: Vec<NicSpec>,
    /// Devices of the host that it has for itself (LS-8).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passthrough: Vec<PassthroughSpec>,
    /// Its VMCI device, if it has one (VC-1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vmci: Option<VmciSpec>,
    /// LS-1.
    #[serde(default)]
    pub latency_sensitivity: LatencySensitivity,
}

impl Default for VmSpec {
    fn default() -> Self {
        Self {
            kind: VmKind::default(),
            accelerator: AcceleratorChoice::default(),
            vcpus: one(),
            memory: default_memory(),
            memory_reservation: MemoryReservation::default(),
            memory_limit: MemoryLimit::default(),
            memory_shares: Shares::default(),
            cpu: CpuResources::default(),
            placement: PlacementSpec::default(),
            halt: HaltSpec::default(),
            boot: None,
            disk: None,
            nics: Vec::new(),
            passthrough: Vec::new(),
            vmci: None,
            latency_sensitivity: LatencySensitivity::default(),
        }
    }
}

const fn one() -> u32 {
    1
}

const fn default_memory() -> Bytes {
    Bytes::mib(256)
}

/// Who runs a VM.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum VmKind {
    /// A QEMU process: any guest.
    #[default]
    Qemu,
    /// A microguest: taut's own driver end of the rings and a small TCP/IP stack, for native-speed experiments.
    Micro,
}

/// Direct kernel boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Boot {
    /// Kernel image; relative paths are relative to the VM file.
    pub kernel: String,
    /// Initial RAM file system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initrd: Option<String>,
    /// Appended to the kernel command line.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cmdline: String,
}

/// A disk image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Disk {
    /// Image file or block device; relative paths are relative to the VM file.
    pub path: String,
    /// Image format.
    #[serde(default)]
    pub format: DiskFormat,
    /// Controller that the guest finds it on.
    #[serde(default)]
    pub bus: DiskBus,
    /// Discard all writes when the VM stops (QEMU's snapshot mode).
    #[serde(default)]
    pub snapshot: bool,
    /// The most that it is read and written (VN-14).
    #[serde(default, skip_serializing_if = "DiskLimits::is_none")]
    pub limits: DiskLimits,
    /// How much it counts beside other VMs' disks while their device is busy (VN-14; ESX: `sched.scsi0:0.shares`).
    #[serde(default, skip_serializing_if = "Shares::is_default")]
    pub shares: Shares,
}

/// Format of a disk image.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DiskFormat {
    /// Plain bytes.
    #[default]
    Raw,
    /// QEMU's copy-on-write format.
    Qcow2,
    /// VMware's.
    Vmdk,
}

/// Controller that the guest finds its disk on. A guest that was installed elsewhere may have the driver of only one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DiskBus {
    /// Paravirtual.
    #[default]
    Virtio,
    /// AHCI.
    Sata,
    /// VMware's paravirtual SCSI controller.
    Pvscsi,
    /// LSI's SAS controller ("LSI Logic SAS" on ESX).
    Lsisas1068,
    /// NVM Express.
    Nvme,
}

/// A virtual network card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NicSpec {
    /// The port group it is connected to.
    pub portgroup: Name,
    /// Its address; derived from VM and position when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<MacAddr>,
    /// The card that the guest sees (VN-7).
    #[serde(default)]
    pub model: NicModel,
    /// Address that taut's guest agent gives the interface; other guests configure themselves.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "crate::ip::optional")]
    #[schema(value_type = Option<String>, example = "10.0.0.1/24")]
    pub ip: Option<Ipv4Net>,
    /// Ring sizes (VN-8).
    #[serde(default)]
    pub rings: Rings,
    /// Pairs of a receive and a transmit queue offered. A guest uses as many of them as it has vCPUs, or as `ethtool -L`
    /// says.
    #[serde(default, skip_serializing_if = "QueuePairs::is_default")]
    pub queues: QueuePairs,
    /// Checksum and segmentation offloads offered to the guest.
    #[serde(default = "yes")]
    pub offloads: bool,
    /// Traffic shaping of this card instead of its port group's (VN-4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shaping: Option<Shaping>,
    /// Moderation of interrupts and kicks (VN-11; ESX: `ethernetX.coalescingScheme`, `coalescingParams`): `disabled`,
    /// `static:PACKETS`, `rbc:RATE`, `adapt`; the host's default when absent. Cards that QEMU emulates have none.
    #[serde(default, skip_serializing_if = "NicCoalescing::is_default")]
    pub coalescing: NicCoalescing,
    /// TCP segments from wires, namespaces and emulated cards are merged for the guest, if its driver takes them merged
    /// (VN-12) and the host's `Net.Vmxnet3SwLRO` is on. Cards that QEMU emulates get single segments. On unless said
    /// otherwise, and off while the VM is latency-sensitive (LS-7).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lro: Option<bool>,
}

const fn yes() -> bool {
    true
}

/// The card that the guest sees (VN-7).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum NicModel {
    /// Paravirtual, on the fabric's rings.
    #[default]
    Virtio,
    /// VMware's paravirtual card, emulated by QEMU.
    Vmxnet3,
    /// Intel 82540EM, emulated by QEMU.
    E1000,
    /// Intel 82574L, emulated by QEMU.
    E1000e,
    /// AMD PCnet ("vlance" on ESX), emulated by QEMU.
    Vlance,
}

/// Descriptors per ring, a power of two from 64 to 1024 (VN-8), and the rings' format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Rings {
    /// Receive ring.
    pub rx: u16,
    /// Transmit ring.
    pub tx: u16,
    /// Offer packed rings (virtio 1.1 and later) instead of split ones; a driver that does not know them ignores it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub packed: bool,
}

impl Default for Rings {
    fn default() -> Self {
        Self { rx: 256, tx: 256, packed: false }
    }
}

/// LS-1. ESX's experimental `low` and `medium` act as `normal` and are reported.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum LatencySensitivity {
    /// Shares the host like any process.
    #[default]
    Normal,
    /// Exclusive pCPUs, siblings idle.
    High,
    /// "High with Hyperthreading": two consecutive vCPUs share one core.
    HighHt,
}

/// Whether the user wants a VM to run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Power {
    /// Not running.
    #[default]
    Off,
    /// Running.
    On,
}

/// What the store keeps of a VM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VmDesired {
    /// The file's content, defaults filled in, paths absolute, addresses assigned.
    #[serde(flatten)]
    pub vm: VmSpec,
    /// Should it run?
    #[serde(default)]
    pub power: Power,
}

/// What is observed of a VM.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VmStatus {
    /// The state of its process.
    pub phase: Phase,
    /// Why it is in that state, when that is not obvious.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Its process, while there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Accelerator that the running VM was started with (`kvm`, `tcg` or `native` for a micro VM).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accelerator: Option<String>,
    /// Unix socket of the agent channel inside the VM (`taut bench` speaks to it).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_socket: Option<String>,
    /// Unix socket of the serial console.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub console_socket: Option<String>,
    /// File with everything that the console printed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub console_log: Option<String>,
    /// Its vNICs' ports, in order.
    #[serde(default)]
    pub nics: Vec<NicStatus>,
    /// Its VMCI device, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vmci: Option<VmciStatus>,
    /// What became of its latency sensitivity; absent when it is `normal`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<LatencyStatus>,
    /// What became of its shares, limits and placement; absent where nothing on this host depends on them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceStatus>,
    /// What became of the accelerator that was asked for, of what idle vCPUs are to do, of the disk's limits and of devices of the
    /// host; absent where none was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<ResourceStatus>,
}

/// The state of a VM's process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// No process, none wanted.
    #[default]
    Stopped,
    /// Process exists, not all its ports are up yet.
    Starting,
    /// Running.
    Running,
    /// Asked to stop, still there.
    Stopping,
    /// Wanted, but it could not be started or died; `reason` says why.
    Failed,
}

/// The state of a vNIC's port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NicStatus {
    /// Its address.
    pub mac: MacAddr,
    /// The port group it is on.
    pub portgroup: Name,
    /// Port number in the fabric.
    pub port: u32,
    /// State of the link.
    pub link: Link,
    /// Why the link is not up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Moderation in force; absent for cards that QEMU emulates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coalescing: Option<Coalescing>,
    /// Are segments merged for it? By its own setting and the host's; whether the guest's driver takes them is another
    /// matter.
    pub lro: bool,
}

/// What is observed of a VM's VMCI device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VmciStatus {
    /// Its context ID.
    pub cid: Cid,
    /// Its number among the fabric's ports, whose counters are its own.
    pub port: u32,
    /// Is the guest's driver there?
    pub link: Link,
    /// Why it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Unix socket by which programs of the host reach the guest: `CONNECT <port>\n`, answered by `OK <port>\n`. What the guest
    /// connects to at the host is a Unix socket of this name with `_<port>` appended.
    pub socket: String,
    /// What it has done.
    #[serde(default)]
    pub counters: VmciCounters,
}
