//! Virtual machines: the user's description and the observed state.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::coalescing::NicCoalescing;
use crate::confinement::Confinement;
use crate::fabric::counters::VmciCounters;
use crate::latency::LatencyStatus;
use crate::link::{Link, WantedLink};
use crate::machine::{AcceleratorChoice, DiskLimits, HaltSpec, VmAccelerator};
use crate::network_io::NetworkAllocation;
use crate::passthrough::PassthroughSpec;
use crate::placement::PlacementSpec;
use crate::resources::{CpuResources, MemoryReservation};
use crate::shaping::{OwnShaping, PortShaping};
use crate::shares::{MemoryLimit, ResourceStatus, Shares};
use crate::vmci::{Cid, VmciSpec};
use crate::{Bytes, Coalescing, GuestMac, MacAddr, Name, QueuePairs};

/// Description of a VM, as in its file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VmSpec {
    /// Kind of VM: QEMU or microguest.
    #[serde(default)]
    pub kind: VmKind,
    /// Accelerator: `auto` (KVM if a probe showed that it runs guests, else emulation), `kvm` or
    /// `tcg`.
    #[serde(default, skip_serializing_if = "AcceleratorChoice::is_auto")]
    pub accelerator: AcceleratorChoice,
    /// Number of virtual CPUs, 1 to 256.
    #[serde(default = "one")]
    pub vcpus: u32,
    /// Size of the guest's memory.
    #[serde(default = "default_memory")]
    pub memory: Bytes,
    /// Memory reserved for the VM (LS-2 memory reservation).
    #[serde(default, skip_serializing_if = "MemoryReservation::is_none")]
    pub memory_reservation: MemoryReservation,
    /// Upper limit of the host memory that the VM gets (VN-14 shares and limits).
    #[serde(default, skip_serializing_if = "MemoryLimit::is_none")]
    pub memory_limit: MemoryLimit,
    /// Weight of the VM when memory is scarce (VN-14 shares and limits).
    #[serde(default, skip_serializing_if = "Shares::is_default")]
    pub memory_shares: Shares,
    /// Reservation, limit and shares of CPU.
    #[serde(default, skip_serializing_if = "CpuResources::is_default")]
    pub cpu: CpuResources,
    /// Placement of vCPUs and memory (LS-5 local memory).
    #[serde(default, skip_serializing_if = "PlacementSpec::is_default")]
    pub placement: PlacementSpec,
    /// Behaviour of idle vCPUs.
    #[serde(default, skip_serializing_if = "HaltSpec::is_default")]
    pub halt: HaltSpec,
    /// Direct kernel boot, with or without a disk. A VM of QEMU has this, a disk, or both; a
    /// microguest has neither.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<Boot>,
    /// System disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<Disk>,
    /// Virtual network cards, in the guest's order.
    #[serde(default, rename = "nic", skip_serializing_if = "Vec::is_empty")]
    pub nics: Vec<NicSpec>,
    /// Devices of the host that are passed through to the VM (LS-8 pass-through).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passthrough: Vec<PassthroughSpec>,
    /// The VMCI device; absent for a VM without VMCI sockets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vmci: Option<VmciSpec>,
    /// Size of the memory for queue pairs of a VMCI device that was removed while the VM runs: the
    /// process has the memory until it ends. Never part of a document.
    #[serde(skip)]
    #[schema(ignore)]
    pub leftover_queue_pairs: Bytes,
    /// Latency sensitivity (LS-1 latency sensitivity).
    #[serde(default)]
    pub latency_sensitivity: LatencySensitivity,
}

impl VmSpec {
    /// Memory sizes are multiples of this: the size of the huge pages that guest memory consists of
    /// where the host has them.
    pub const MEMORY_STEP: Bytes = Bytes::mib(2);

    /// Returns the size of the memory for queue pairs of the VMCI device, or of one that was
    /// removed and whose memory is still there; 0 without any.
    pub fn queue_pairs(&self) -> Bytes {
        self.vmci.as_ref().map_or(self.leftover_queue_pairs, VmciSpec::queue_pairs)
    }

    /// Returns the most memory for queue pairs that can be added while the VM runs; 0 without room.
    pub fn queue_pairs_room(&self) -> Bytes {
        self.vmci.as_ref().map(VmciSpec::queue_pairs_room).unwrap_or_default()
    }
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
            leftover_queue_pairs: Bytes(0),
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

/// Kind of VM.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum VmKind {
    /// A QEMU process, for any guest.
    #[default]
    Qemu,
    /// A microguest: taut's own driver end of the rings with a small TCP/IP stack, for experiments
    /// at native speed.
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
    /// Text appended to the kernel command line.
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
    /// Disk controller that the guest sees.
    #[serde(default)]
    pub bus: DiskBus,
    /// Discard all writes when the VM stops (QEMU's snapshot mode).
    #[serde(default)]
    pub snapshot: bool,
    /// Upper limits of reading and writing (VN-14 shares and limits).
    #[serde(default, skip_serializing_if = "DiskLimits::is_none")]
    pub limits: DiskLimits,
    /// Weight of the disk while several VMs use a busy device (VN-14 shares and limits; ESX:
    /// `sched.scsi0:0.shares`).
    #[serde(default, skip_serializing_if = "Shares::is_default")]
    pub shares: Shares,
}

/// Format of a disk image.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DiskFormat {
    /// Raw image.
    #[default]
    Raw,
    /// QEMU's copy-on-write format, qcow2.
    Qcow2,
    /// VMware's format, vmdk.
    Vmdk,
}

/// Disk controller that the guest sees. A guest that was installed elsewhere may have a driver for
/// only one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DiskBus {
    /// Paravirtual virtio-blk.
    #[default]
    Virtio,
    /// AHCI (SATA).
    Sata,
    /// VMware's paravirtual SCSI controller.
    Pvscsi,
    /// LSI's SAS controller ("LSI Logic SAS" on ESX).
    Lsisas1068,
    /// NVM Express.
    Nvme,
}

impl NicSpec {
    /// Speed in Mbit/s that virtio cards state, and the devices of namespaces: what vmxnet3 states
    /// on ESX. It bounds nothing.
    pub const SPEED_MBIT: u32 = 10_000;
}

/// A virtual network card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NicSpec {
    /// Port group that the card is connected to.
    pub portgroup: Name,
    /// Link of the card: `up`, or `down` for a card that is not connected now.
    #[serde(default, skip_serializing_if = "WantedLink::is_up")]
    pub link: WantedLink,
    /// Ethernet address; derived from the VM's name and the card's index if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<MacAddr>,
    /// Model of the card that the guest sees.
    #[serde(default)]
    pub model: NicModel,
    /// Address that taut's guest agent gives the interface. Guests without the agent configure
    /// themselves.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "crate::ip::optional")]
    #[schema(value_type = Option<String>, example = "10.0.0.1/24")]
    pub ip: Option<Ipv4Net>,
    /// Router to other networks, in the network of `ip`. taut's guest agent makes it the guest's
    /// default route. One card of a VM can have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "10.0.0.254")]
    pub gateway: Option<Ipv4Addr>,
    /// Sizes and format of the rings.
    #[serde(default)]
    pub rings: Rings,
    /// Number of queue pairs offered. A guest uses as many as it has vCPUs, or as `ethtool -L`
    /// says.
    #[serde(default, skip_serializing_if = "QueuePairs::is_default")]
    pub queues: QueuePairs,
    /// Checksum and segmentation offloads offered to the guest.
    #[serde(default = "yes")]
    pub offloads: bool,
    /// Traffic shaping of this card. It replaces that of its port group in each direction that it
    /// names; `"off"` lifts the port group's limit.
    #[serde(default, skip_serializing_if = "OwnShaping::is_default")]
    pub shaping: OwnShaping,
    /// Part of each uplink for what the guest sends, under network I/O control: shares,
    /// reservation and limit within the class of its port group (ESX: *Shares*, *Reservation* and
    /// *Limit* of a network adapter).
    #[serde(default, skip_serializing_if = "NetworkAllocation::is_default")]
    pub uplink_allocation: NetworkAllocation,
    /// Interrupt and kick moderation (ESX: `ethernetX.coalescingScheme`, `coalescingParams`):
    /// `disabled`, `static:PACKETS`, `rbc:RATE` or `adapt`; the host's setting if absent. Emulated
    /// cards have no moderation.
    #[serde(default, skip_serializing_if = "NicCoalescing::is_default")]
    pub coalescing: NicCoalescing,
    /// Large receive offload: merge TCP segments from wires, namespaces and emulated cards for the
    /// guest. Takes effect if the guest's driver accepts merged segments and the host's
    /// `Net.Vmxnet3SwLRO` is on. Default on; off while the VM is latency-sensitive. Emulated cards
    /// get single segments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lro: Option<bool>,
}

const fn yes() -> bool {
    true
}

/// Model of the card that the guest sees.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum NicModel {
    /// Paravirtual virtio-net, served by the fabric.
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

impl NicModel {
    /// Returns whether QEMU emulates the card.
    pub fn is_emulated(self) -> bool {
        self != Self::Virtio
    }
}

/// Number of descriptors per ring, a power of two from 64 to 1024, and the rings' format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Rings {
    /// Receive ring.
    pub rx: u16,
    /// Transmit ring.
    pub tx: u16,
    /// Offer packed rings (virtio 1.1 and later) instead of split ones. A driver that does not know
    /// them uses split rings.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub packed: bool,
}

impl Default for Rings {
    fn default() -> Self {
        Self { rx: 256, tx: 256, packed: false }
    }
}

/// Latency sensitivity of a VM (LS-1 latency sensitivity). ESX's experimental `low` and `medium`
/// act as `normal` and are reported.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum LatencySensitivity {
    /// The VM shares the host's pCPUs.
    #[default]
    Normal,
    /// Each vCPU owns a pCPU, whose SMT siblings stay idle.
    High,
    /// "High with Hyperthreading": two consecutive vCPUs share one core.
    HighHt,
}

/// Power state that the user wants.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Power {
    /// Off.
    #[default]
    Off,
    /// On.
    On,
}

/// Stored state of a VM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VmDesired {
    /// The VM's description with defaults filled in, absolute paths, and assigned addresses.
    #[serde(flatten)]
    pub vm: VmSpec,
    /// Power state that the user wants.
    #[serde(default)]
    pub power: Power,
}

/// Observed state of a VM.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VmStatus {
    /// State of the process.
    pub phase: Phase,
    /// Reason for the state, unless it is obvious.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Process ID, while the VM runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// User ID of the owner: who created the VM, or 0 if an administrator did. The files that the
    /// VM's description names are opened with the owner's rights.
    #[serde(default)]
    pub owner: u32,
    /// vCPUs and memory that the running VM was started with; the next start takes those of the
    /// description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<VmSize>,
    /// Accelerator that the running VM was started with: `kvm`, `tcg`, or `native` for a
    /// microguest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accelerator: Option<VmAccelerator>,
    /// Walls between the process and the host; absent for a process that an earlier version started
    /// without them, until the VM is started again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confinement: Option<Confinement>,
    /// Unix socket of the agent inside the VM, which `taut bench` uses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_socket: Option<String>,
    /// Unix socket of the serial console.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub console_socket: Option<String>,
    /// Log file of the serial console.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub console_log: Option<String>,
    /// Ports of the network cards, in order.
    #[serde(default)]
    pub nics: Vec<NicStatus>,
    /// State of the VMCI device; absent for a VM without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vmci: Option<VmciStatus>,
    /// State of the latency sensitivity; absent if it is `normal`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<LatencyStatus>,
    /// State of shares, limits and placement; absent if nothing on this host depends on them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceStatus>,
    /// State of the accelerator, idle vCPUs, disk limits, pass-through devices and the VMCI device;
    /// absent if nothing was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<ResourceStatus>,
}

/// vCPUs and memory of a running VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VmSize {
    /// Number of virtual CPUs.
    pub vcpus: u32,
    /// Size of the guest's memory.
    pub memory: Bytes,
}

/// State of a VM's process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// No process, and none is wanted.
    #[default]
    Stopped,
    /// The VM should run, and does not yet: `reason` says what it waits for.
    Starting,
    /// The process has finished starting, and its ports are connected.
    Running,
    /// The VM was asked to stop, and its process still exists.
    Stopping,
    /// The VM should run, but could not be started or died; `reason` says why.
    Failed,
}

/// State of a network card's port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NicStatus {
    /// Configured Ethernet address.
    pub mac: MacAddr,
    /// Address that the guest's driver has set.
    #[serde(flatten)]
    pub guest_mac: GuestMac,
    /// Port group that the card is connected to.
    pub portgroup: Name,
    /// Number of the port in the fabric.
    pub port: u32,
    /// State of the link.
    pub link: Link,
    /// Reason that the link is not up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Moderation in force; absent for emulated cards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coalescing: Option<Coalescing>,
    /// True if the settings of card and host enable large receive offload. The guest's driver may
    /// still refuse merged segments.
    pub lro: bool,
    /// Traffic shaping in force, and its origin.
    #[serde(default)]
    pub shaping: PortShaping,
}

/// Observed state of a VM's VMCI device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VmciStatus {
    /// Context ID.
    pub cid: Cid,
    /// Number of the device's port in the fabric.
    pub port: u32,
    /// State of the link: up while the guest's driver serves the device.
    pub link: Link,
    /// Reason that the link is not up, or that the device's group does not have its socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Unix socket through which programs on the host reach the guest: they send `CONNECT <port>\n`
    /// and receive `OK <port>\n`. Connections of the guest to the host go to Unix sockets with this
    /// name and `_<port>` appended.
    pub socket: String,
    /// The same for members of the device's group; absent if there is none, or if it does not have
    /// the socket. A guest's connection comes to this one if nothing listens at the other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_socket: Option<String>,
    /// Size of the memory for queue pairs that the running VM has; absent without any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_pairs: Option<Bytes>,
    /// Most memory for queue pairs that can be added to the running VM; absent if it was started
    /// without room, or has such memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_pairs_room: Option<Bytes>,
    /// Counters of the device.
    #[serde(default)]
    pub counters: VmciCounters,
}
