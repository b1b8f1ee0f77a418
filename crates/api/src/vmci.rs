//! VMCI sockets (SPEC rows VC-1 to VC-4; ESX: `vmci0.*`): stream sockets between machines by context ID, which guests know as
//! `AF_VSOCK`.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Name;

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
