//! The whole wanted state of the fabric. A port that is not in it is closed; applying it twice changes nothing.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::network::{MacLearning, Security};
use crate::shaping::Shaping;
use crate::vmci::Cid;
use crate::{Coalescing, MacAddr, Name, Vlan};

/// Number of a port: stable for the life of its vNIC or attachment, and the index of its counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PortId(pub u16);

/// Number of a vSwitch: the ports that may reach each other, as far as their VLANs allow. Frames never cross from one to
/// another.
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
    /// Grows with each configuration; echoed when applied.
    pub revision: u64,
    /// Ports, in any order, each id once.
    pub ports: Vec<PortConfig>,
    /// VMCI devices, in any order. Their numbers are among those of the ports: none is both.
    #[serde(default)]
    pub sockets: Vec<SocketConfig>,
    /// How worker threads behave.
    pub workers: WorkerConfig,
    /// How the thread behaves that moves what goes through sockets.
    #[serde(default)]
    pub socket_worker: SocketWorker,
}

/// A VM's VMCI device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketConfig {
    /// Its number, below [`super::counters::MAX_PORTS`]: of its session, its attachments and its counters.
    pub id: PortId,
    /// Whose it is, for messages: `vm/NAME/vmci`.
    pub owner: String,
    /// Its context ID, of no other device.
    pub cid: Cid,
    /// The groups that it is in.
    pub domains: Vec<Name>,
    /// It may talk to other devices that are unrestricted.
    pub unrestricted: bool,
    /// Most connections at a time.
    pub connections: u32,
    /// Most of them that nobody has accepted yet.
    pub half_open: u32,
}

/// The thread that moves what goes through sockets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketWorker {
    /// When it sleeps.
    pub mode: WorkerMode,
    /// The pCPU that it is bound to; none: placed by the kernel.
    pub cpu: Option<u32>,
}

/// One port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortConfig {
    /// Its number, below [`super::counters::MAX_PORTS`].
    pub id: PortId,
    /// Whose it is, for messages: `vm/NAME/nic0`.
    pub owner: String,
    /// What is at the other end.
    pub kind: PortKind,
    /// The vSwitch it is on.
    pub segment: SegmentId,
    /// The VLANs that it is in.
    pub vlan: Vlan,
    /// The address that the switch knows for it.
    pub mac: MacAddr,
    /// Port group's security policy.
    pub security: Security,
    /// Traffic shaping.
    pub shaping: Shaping,
    /// Addresses behind it are learnt.
    pub mac_learning: Option<MacLearning>,
    /// Moderation of a guest's rings; other ports have none.
    pub coalescing: Coalescing,
    /// Merge TCP segments for it, if its driver takes them merged.
    pub lro: bool,
}

/// What is at the other end of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum PortKind {
    /// A guest's virtio-net over vhost-user.
    VhostUser {
        /// Offer checksum and segmentation offloads.
        offloads: bool,
        /// Pairs of receive and transmit queues offered, 1 to 8.
        queue_pairs: u8,
    },
    /// A TAP device, opened with `IFF_NO_PI | IFF_VNET_HDR` and its 12-byte header.
    Tap {
        /// Checksum and segmentation offloads were switched on for it.
        offloads: bool,
    },
    /// A Unix stream with a 4-byte big-endian length before each frame: QEMU's `-netdev stream`, for emulated cards.
    Stream,
}

/// How worker threads behave.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerConfig {
    /// When they sleep.
    pub mode: WorkerMode,
    /// pCPUs that workers are bound to, one worker each, at most [`super::counters::MAX_WORKERS`]; empty: one worker,
    /// placed by the kernel.
    pub cpus: Vec<u32>,
    /// pCPUs that a worker runs on, and the thread for sockets, which has none of its own; empty: any.
    #[serde(default)]
    pub near: Vec<u32>,
}

impl WorkerConfig {
    /// How many workers are wanted.
    pub fn count(&self) -> usize {
        self.cpus.len().max(1)
    }
}

/// When a worker without work sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkerMode {
    /// At once: the least CPU time, and a wake-up for each burst.
    Interrupt,
    /// After it has polled for a while.
    Adaptive {
        /// Microseconds that it polls after the last frame.
        poll_us: u32,
    },
    /// Never: the shortest delays, and a pCPU that is always busy.
    Polling,
}

impl WorkerMode {
    /// Its name, as users write it.
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
