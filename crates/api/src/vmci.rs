//! VMCI sockets (ESX: `vmci0.*`): stream sockets between machines, addressed by context ID. Guests
//! use them as `AF_VSOCK`.

mod connection;

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_with::{DeserializeFromStr, SerializeDisplay};
use utoipa::ToSchema;

pub use self::connection::{Carrier, SocketKind, VmciConnection, VmciEnd};
use crate::name::BadName;
use crate::word::removes;
use crate::{Bytes, Name};

/// A context ID: the address of a machine. 0 to 2 are the hypervisor, the local machine and the
/// host (virtio 1.2, 5.10.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
pub struct Cid(pub u32);

impl Cid {
    /// The host.
    pub const HOST: Self = Self(2);
    /// The lowest that a VM can have.
    pub const FIRST: Self = Self(3);
    /// The highest that a VM can have; the next value means "any".
    pub const LAST: Self = Self(u32::MAX - 1);

    /// Returns whether a VM can have it.
    pub fn is_a_vms(self) -> bool {
        (Self::FIRST..=Self::LAST).contains(&self)
    }
}

impl fmt::Display for Cid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Default limit of a VM's connections, including those with the host.
pub const CONNECTIONS: u32 = 4096;
/// Default limit of connections that are not accepted yet.
pub const HALF_OPEN: u32 = 256;

/// A VM's VMCI device. A VM without one has no VMCI sockets.
///
/// By default the device connects the VM only with the host. Two VMs can talk if they have a common
/// domain, or if both are unrestricted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VmciSpec {
    /// Context ID, unique on the host (ESX: `vmci0.id`); assigned and then kept if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cid: Option<Cid>,
    /// VMCI domains of the VM (ESX: `vmci0.domain`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub domains: Vec<Name>,
    /// True if the VM may talk to every other unrestricted VM (ESX: `vmci0.unrestricted`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unrestricted: bool,
    /// Limit of simultaneous connections that the VM has opened, or that programs on the host have
    /// opened to it, 1 to 65536; [`CONNECTIONS`] if absent. Connections that another VM has opened
    /// count to the limit of that VM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<u32>,
    /// Limit of connections that are not accepted yet; [`HALF_OPEN`] if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub half_open: Option<u32>,
    /// Group of users on the host, by name or number. Its members may connect to the guest, and
    /// listen for the guest's connections, in a folder of their own. Only members of a group and
    /// administrators can name it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Name>,
    /// Size of the memory for queue pairs, through which programs in the guest exchange bytes of
    /// their connections with the host instead of in packets: a power of two from 4MiB to 1GiB. The
    /// guest sees it as an NVDIMM, and Linux as `/dev/dax0.0`. Absent or 0: none. Only QEMU's VMs
    /// have it, from their next start on. A running VM with no such memory yet gets it at once
    /// if it was started with `queue_pairs_room` and the size fits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_pairs: Option<Bytes>,
    /// Most memory for queue pairs that can be added while the VM runs, which it has to be started
    /// with: a power of two from 4MiB to 1GiB. Absent or 0: none can be added.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_pairs_room: Option<Bytes>,
}

/// The group of a VMCI device in a request: a name or number, or `none`.
#[derive(Debug, Clone, Default, PartialEq, Eq, SerializeDisplay, DeserializeFromStr, ToSchema)]
#[schema(value_type = String)]
pub struct GroupChoice(pub Option<Name>);

impl FromStr for GroupChoice {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        if removes(text) { Ok(Self::default()) } else { text.parse().map(|name| Self(Some(name))) }
    }
}

impl fmt::Display for GroupChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(group) => group.fmt(f),
            None => f.pad("none"),
        }
    }
}

impl VmciSpec {
    /// Maximum number of domains of one device.
    pub const MOST_DOMAINS: usize = 64;
    /// Least and greatest size of the memory for queue pairs.
    pub const QUEUE_PAIRS: RangeInclusive<Bytes> = Bytes::mib(4)..=Bytes::mib(1024);
    /// Size of what precedes the queue pairs in the NVDIMM: a description for the guest's kernel.
    pub const QUEUE_PAIRS_OFFSET: Bytes = Bytes::mib(2);

    /// Returns the limit of simultaneous connections.
    pub fn most_connections(&self) -> u32 {
        self.connections.unwrap_or(CONNECTIONS)
    }

    /// Returns the limit of connections that are not accepted yet, at most that of all connections.
    pub fn most_half_open(&self) -> u32 {
        self.half_open.unwrap_or_else(|| HALF_OPEN.min(self.most_connections()))
    }

    /// Returns the size of the memory for queue pairs; 0 without any.
    pub fn queue_pairs(&self) -> Bytes {
        self.queue_pairs.unwrap_or_default()
    }

    /// Returns the most memory for queue pairs that can be added while the VM runs; 0 without room.
    pub fn queue_pairs_room(&self) -> Bytes {
        self.queue_pairs_room.unwrap_or_default()
    }

    /// Returns the size of the NVDIMM with so much memory for queue pairs; 0 without any.
    pub const fn nvdimm_of(queue_pairs: Bytes) -> Bytes {
        if queue_pairs.0 == 0 { Bytes(0) } else { Bytes(Self::QUEUE_PAIRS_OFFSET.0 + queue_pairs.0) }
    }
}
