//! VMCI sockets (SPEC rows VC-1 to VC-4; ESX: `vmci0.*`): stream sockets between machines by context ID, which guests know as
//! `AF_VSOCK`.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Name;
use crate::link::Link;

/// A context ID: the address of a machine. 0 to 2 are the hypervisor, the machine itself and the host (virtio 1.2, 5.10.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
pub struct Cid(pub u32);

impl Cid {
    /// The host.
    pub const HOST: Self = Self(2);
    /// The first that a VM may have.
    pub const FIRST: Self = Self(3);
    /// The last that a VM may have: the next one means "any".
    pub const LAST: Self = Self(u32::MAX - 1);

    /// May a VM have it?
    pub fn is_a_vms(self) -> bool {
        (Self::FIRST..=Self::LAST).contains(&self)
    }
}

impl fmt::Display for Cid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Most connections of one VM, host's ones included, unless its file says otherwise.
pub const CONNECTIONS: u32 = 4096;
/// Most of them that nobody has accepted yet.
pub const HALF_OPEN: u32 = 256;

/// A VM's VMCI device. A VM without one has no VMCI sockets.
///
/// By default it reaches only the host, and the host it. It reaches another VM if both have a domain in common, or if both are
/// unrestricted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VmciSpec {
    /// Its context ID (ESX: `vmci0.id`), unique on the host; assigned when absent, and then kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cid: Option<Cid>,
    /// The groups that it is in (ESX: `vmci0.domain`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub domains: Vec<Name>,
    /// It may talk to every other VM that is unrestricted, too (ESX: `vmci0.unrestricted`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unrestricted: bool,
    /// Most connections at a time, 1 to 65536; [`CONNECTIONS`] when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<u32>,
    /// Most of them that nobody has accepted yet; [`HALF_OPEN`] when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub half_open: Option<u32>,
}

impl VmciSpec {
    /// Most groups that one device can be in.
    pub const MOST_DOMAINS: usize = 64;

    /// Most connections at a time.
    pub fn most_connections(&self) -> u32 {
        self.connections.unwrap_or(CONNECTIONS)
    }

    /// Most of them that nobody has accepted yet: never more than connections.
    pub fn most_half_open(&self) -> u32 {
        self.half_open.unwrap_or_else(|| HALF_OPEN.min(self.most_connections()))
    }
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

/// What a VM's VMCI device has done since its port exists.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VmciCounters {
    /// Connections that are open now, half-open ones included.
    pub connections: u64,
    /// Connections that were opened, from either side.
    pub opened: u64,
    /// Payload bytes delivered to the guest.
    pub rx_bytes: u64,
    /// Payload bytes taken from the guest.
    pub tx_bytes: u64,
    /// Packets delivered to the guest.
    pub rx_packets: u64,
    /// Packets taken from the guest.
    pub tx_packets: u64,
    /// Requests of the guest's that were answered by a reset: nobody there, or nobody that it may talk to.
    pub refused: u64,
    /// Requests by or to the guest that were answered by a reset because of a limit.
    pub limited: u64,
    /// Packets dropped because their source was not the guest's.
    pub forged: u64,
    /// Packets dropped because they made no sense.
    pub malformed: u64,
    /// Connections that were reset because one side broke the rules, or by a restart.
    pub resets: u64,
    /// Interrupts sent to the guest.
    pub interrupts: u64,
    /// Notifications received from the guest.
    pub kicks: u64,
}
