//! The whole wanted state of the fabric. The fabric closes ports that are absent from it; applying
//! it twice changes nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use crate::direction::Directions;
use crate::network::{MacLearning, Security};
use crate::network_io::{NetworkAllocation, TrafficClass};
use crate::shaping::Shaping;
use crate::teaming::TeamPolicy;
use crate::vmci::Cid;
use crate::{Bytes, Coalescing, MacAddr, Name, PathProbe, Vlan};

/// Number of a port: stable for the life of its vNIC or attachment, and index of its counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PortId(pub u16);

/// Number of a segment, the ports of one vSwitch. Frames never cross between segments; VLANs divide
/// a segment further.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SegmentId(pub u16);

impl fmt::Display for PortId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "port {}", self.0)
    }
}

/// Everything that `tautd` wants of the fabric.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FabricConfig {
    /// Revision of the configuration; the fabric reports it when applied.
    pub revision: u64,
    /// Ports, in any order, each id once.
    pub ports: Vec<PortConfig>,
    /// Teams of uplinks, by which ports of their segments reach the outside.
    #[serde(default)]
    pub teams: Vec<TeamConfig>,
    /// Segments with network I/O control.
    #[serde(default)]
    pub network_io: Vec<NetworkIoConfig>,
    /// Segments with IGMP and MLD snooping.
    #[serde(default)]
    pub snooping: Vec<SegmentId>,
    /// VMCI devices, in any order. They share the number space of the ports.
    #[serde(default)]
    pub sockets: Vec<SocketConfig>,
    /// Behaviour of the worker threads.
    pub workers: WorkerConfig,
    /// Behaviour of the thread that serves sockets.
    #[serde(default)]
    pub socket_worker: SocketWorker,
}

/// Uplinks of a segment, as some of its ports use them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TeamConfig {
    /// Segment of the uplinks and of the ports.
    pub segment: SegmentId,
    /// Rule by which a port chooses an uplink.
    pub policy: TeamPolicy,
    /// Ports of the uplinks that are used as long as they have a link, the first one first.
    pub active: Vec<PortId>,
    /// Ports of the uplinks that replace them, the first one first.
    pub standby: Vec<PortId>,
    /// An active uplink whose link comes back is used at once.
    pub failback: bool,
    /// Physical switches are told where the ports are.
    pub notify_switches: bool,
    /// Probes of uplinks whose links are up.
    #[serde(default)]
    pub probe: PathProbe,
}

/// Network I/O control of the uplinks of a segment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkIoConfig {
    /// The segment.
    pub segment: SegmentId,
    /// Classes that differ from their defaults.
    pub classes: BTreeMap<TrafficClass, NetworkAllocation>,
}

/// A VM's VMCI device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketConfig {
    /// Number of session, attachments and counters, below [`super::counters::MAX_PORTS`].
    pub id: PortId,
    /// Owner, for messages: `vm/NAME/vmci`.
    pub owner: String,
    /// Context ID, unique among devices.
    pub cid: Cid,
    /// VMCI domains of the device.
    pub domains: Vec<Name>,
    /// True if the device may talk to other unrestricted devices.
    pub unrestricted: bool,
    /// Limit of simultaneous connections that the guest, or a program on the host, has opened.
    pub connections: u32,
    /// Limit of connections that are not accepted yet.
    pub half_open: u32,
    /// Rules for its front end.
    #[serde(default)]
    pub front_end: FrontEndRules,
    /// Memory for queue pairs that the running VM has. `tautd` sends its descriptor
    /// ([`ToFabric::QueuePairMemory`](super::ToFabric::QueuePairMemory)).
    #[serde(default)]
    pub queue_pairs: Option<QueuePairMemory>,
}

/// A memory file with queue pairs. The file ends with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuePairMemory {
    /// Number of the file (`st_ino`), which tells it from the file of the VM's last start.
    pub inode: u64,
    /// Offset of the queue pairs in the file.
    pub offset: Bytes,
    /// Size of the queue pairs.
    pub size: Bytes,
    /// Length of a ring; `None` in memory that was made by a version whose rings have at most
    /// 256 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ring: Option<Bytes>,
}

impl QueuePairMemory {
    /// Longest ring that a fabric without [`Ability::LongRings`](super::Ability::LongRings) finds.
    const SHORT_RING: Bytes = Bytes(256 << 10);

    /// Returns whether only a fabric with [`Ability::LongRings`](super::Ability::LongRings) finds
    /// the rings.
    pub fn has_long_rings(&self) -> bool {
        self.ring.is_some_and(|ring| ring > Self::SHORT_RING)
    }

    /// Returns the size of the file.
    pub const fn file_size(&self) -> Bytes {
        Bytes(self.offset.0.saturating_add(self.size.0))
    }
}

/// Rules for a vhost-user front end: the memory and descriptors that it may bring. Its process may
/// be hostile, and the fabric serves other guests too.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrontEndRules {
    /// Memory of its guest; `None` without a limit. All regions together have little more.
    #[serde(default)]
    pub memory: Option<Bytes>,
    /// Memory may be unsealed, and event descriptors may be of any kind.
    #[serde(default)]
    pub trusted: bool,
}

/// Settings of the thread that serves sockets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketWorker {
    /// When the thread sleeps.
    pub mode: WorkerMode,
    /// pCPU that the thread is bound to; `None` leaves placement to the kernel.
    pub cpu: Option<u32>,
}

/// One port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortConfig {
    /// Number, below [`super::counters::MAX_PORTS`].
    pub id: PortId,
    /// Owner, for messages: `vm/NAME/nic0`.
    pub owner: String,
    /// Kind of the other end.
    pub kind: PortKind,
    /// Segment of the port.
    pub segment: SegmentId,
    /// VLANs of the port.
    pub vlan: Vlan,
    /// Ethernet address that the switch knows for the port. Of an uplink, the address of its card,
    /// from which probes are sent.
    pub mac: MacAddr,
    /// Address that the guest's driver has set, which may be any. `None` if it is not known: then
    /// the fabric infers it from the frames that the port sends.
    #[serde(default)]
    pub effective: Option<MacAddr>,
    /// Place of this address in the order in which drivers have set theirs. Of several ports whose
    /// drivers have set one address, the one with the lowest place gets it, in each fabric.
    #[serde(default)]
    pub effective_order: u64,
    /// IPv4 address from the port's document. It is announced with those that the guest has stated.
    #[serde(default)]
    pub ip: Option<Ipv4Addr>,
    /// Security policy of the port group.
    pub security: Security,
    /// Traffic shaping.
    pub shaping: Shaping,
    /// MAC learning behind the port; `None` without learning.
    pub mac_learning: Option<MacLearning>,
    /// Moderation of a guest's rings; `None` for other ports.
    pub coalescing: Coalescing,
    /// Merges TCP segments for the port, if the guest's driver accepts merged ones.
    pub lro: bool,
    /// Bytes of the longest packet that the port sends and receives, without the Ethernet header
    /// and a tag. `None`: the longest of IP. Ports to guests of one segment have the same.
    #[serde(default)]
    pub mtu: Option<u16>,
    /// Rules for its front end, if it has one.
    #[serde(default)]
    pub front_end: FrontEndRules,
    /// Team by which the port reaches the outside: its place in [`FabricConfig::teams`]. `None` for
    /// an uplink, and on a segment without one.
    #[serde(default)]
    pub team: Option<u16>,
    /// Speed of the uplink's link in bit/s. `None` if it is unknown, and for other ports.
    #[serde(default)]
    pub speed: Option<u64>,
    /// Class of what the port sends to uplinks.
    #[serde(default)]
    pub traffic_class: TrafficClass,
    /// Part of each uplink for the port within its class.
    #[serde(default)]
    pub allocation: NetworkAllocation,
    /// Ports that get copies of the port's frames.
    #[serde(default)]
    pub mirrors: Vec<PortMirror>,
}

/// A port that gets copies of another port's frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortMirror {
    /// The port that gets the copies, on the same segment. An uplink gets none.
    pub to: PortId,
    /// Frames that are copied.
    pub directions: Directions,
}

impl PortConfig {
    /// Returns a port in no VLAN, with the defaults of a port group, and without team or speed.
    pub fn new(id: PortId, owner: String, kind: PortKind, segment: SegmentId, mac: MacAddr) -> Self {
        Self {
            id,
            owner,
            kind,
            segment,
            vlan: Vlan::default(),
            mac,
            effective: None,
            effective_order: 0,
            ip: None,
            security: Security::default(),
            shaping: Shaping::default(),
            mac_learning: None,
            coalescing: Coalescing::Disabled,
            lro: false,
            mtu: None,
            front_end: FrontEndRules::default(),
            team: None,
            speed: None,
            traffic_class: TrafficClass::default(),
            allocation: NetworkAllocation::default(),
            mirrors: Vec::new(),
        }
    }

    /// Returns whether the port receives no frame: its guest has changed its address, which the
    /// policy rejects.
    pub fn is_cut_off(&self) -> bool {
        !self.security.mac_changes && self.effective.is_some_and(|effective| effective != self.mac)
    }
}

/// Kind of the other end of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum PortKind {
    /// A guest's virtio-net over vhost-user.
    VhostUser {
        /// Offer checksum and segmentation offloads.
        offloads: bool,
        /// Number of queue pairs offered, 1 to 8.
        queue_pairs: u8,
    },
    /// A TAP device, opened with `IFF_NO_PI | IFF_VNET_HDR` and its 12-byte header.
    Tap {
        /// True if checksum and segmentation offloads are enabled on the device.
        offloads: bool,
    },
    /// A network card of the host that leads outside. Its port has no address of its own: it sends
    /// from all addresses that no other port of the segment has, and receives the frames to them.
    Uplink,
    /// A network interface of the host with one address at its other end, such as the TAP device of
    /// a VM that another program has started.
    Netdev,
    /// A Unix stream with a 4-byte big-endian length before each frame: QEMU's `-netdev stream`,
    /// for emulated cards.
    Stream,
}

/// Settings of the worker threads.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerConfig {
    /// When workers sleep.
    pub mode: WorkerMode,
    /// pCPUs to bind workers to, one worker each, at most [`super::counters::MAX_WORKERS`]. Empty:
    /// one worker, placed by the kernel.
    pub cpus: Vec<u32>,
    /// Returns the pCPUs of workers and of the socket thread, which may have none of its own; empty
    /// means any.
    #[serde(default)]
    pub near: Vec<u32>,
}

impl WorkerConfig {
    /// Returns the number of workers.
    pub fn count(&self) -> usize {
        self.cpus.len().max(1)
    }
}

/// When an idle worker sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkerMode {
    /// Sleep at once: least CPU time, and a wake-up per burst.
    Interrupt,
    /// Poll for a while, then sleep.
    Adaptive {
        /// Microseconds to poll after the last frame.
        poll_us: u32,
    },
    /// Never sleep: shortest delays, and a pCPU that is always busy.
    Polling,
}

impl WorkerMode {
    /// Returns the name that users write.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Interrupt => "interrupt",
            Self::Adaptive { .. } => "adaptive",
            Self::Polling => "polling",
        }
    }
}

impl Default for WorkerMode {
    fn default() -> Self {
        Self::Adaptive { poll_us: 50 }
    }
}
