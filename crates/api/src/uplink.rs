//! Uplinks: physical network cards that connect a vSwitch with the outside (ESX: `vmnicN`).

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::link::Link;
use crate::{MacAddr, Mtu, Name};

/// Most uplinks of a vSwitch.
pub const MOST_UPLINKS: usize = 32;

/// An uplink of a vSwitch. Its name is that of a network interface of the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UplinkSpec {
    /// vSwitch that the uplink belongs to.
    pub vswitch: Name,
    /// Way in which frames pass between the vSwitch and the interface. It stays the same as long as
    /// the uplink exists.
    #[serde(default, skip_serializing_if = "UplinkBackend::is_packet")]
    pub backend: UplinkBackend,
    /// The interface reads and writes frames in memory that it shares with the vSwitch, if its
    /// driver can. Only with the backend `xdp`, which copies them otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub zero_copy: bool,
}

impl UplinkSpec {
    /// Returns an uplink of a vSwitch with the default backend.
    pub fn new(vswitch: Name) -> Self {
        Self { vswitch, backend: UplinkBackend::default(), zero_copy: false }
    }
}

/// Way in which frames pass between a vSwitch and the interface of an uplink.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum UplinkBackend {
    /// A packet socket: the interface segments, computes checksums and merges segments. Best for
    /// TCP, and for any interface.
    #[default]
    Packet,
    /// An XDP socket: more short frames per second, but no offloads of the interface.
    Xdp,
}

impl UplinkBackend {
    /// Bytes of the longest packet that passes an XDP socket: one chunk of memory has a whole
    /// frame.
    pub const XDP_MTU: u32 = 3822;

    /// Returns the bytes of the longest packet that passes; `None` if the interface alone decides.
    pub const fn most_mtu(self) -> Option<u32> {
        match self {
            Self::Packet => None,
            Self::Xdp => Some(Self::XDP_MTU),
        }
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    fn is_packet(&self) -> bool {
        *self == Self::Packet
    }
}

/// Way in which XDP sockets and their program work at an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct XdpMode {
    /// True if the interface's driver runs the program. Otherwise the kernel does after it has made
    /// a packet of its own, which is slower.
    pub native: bool,
    /// True if the interface reads and writes frames in shared memory; false if the kernel copies
    /// them.
    pub zero_copy: bool,
    /// Number of the interface's receive queues, each with a socket; 0 if an earlier version has
    /// not noted it. Frames are sent by the first one.
    #[serde(default)]
    pub queues: u32,
}

/// State of an uplink.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UplinkStatus {
    /// Number of the port in the fabric.
    pub port: Option<u32>,
    /// True if the fabric sends and receives through the interface.
    pub attached: bool,
    /// State of the interface's link.
    pub link: Link,
    /// Reason that the uplink is not attached, that its link is not up, or that it is not used
    /// although its link is up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Ethernet address of the interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<MacAddr>,
    /// Speed of the interface's link in Mbit/s; absent without a link, and for interfaces that
    /// state none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed_mbit: Option<u64>,
    /// True if network I/O control is in force; absent if the vSwitch has none. It needs an
    /// interface that states its speed, and a fabric that is not of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_io: Option<bool>,
    /// Bytes of the longest packet that the interface sends, without the Ethernet header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// MTU of the vSwitch, if that of the interface is smaller: somebody has changed it, or it
    /// cannot be set. Longer packets are dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vswitch_mtu: Option<Mtu>,
    /// Mode of the XDP socket; absent with another backend, and until the uplink is attached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xdp: Option<XdpMode>,
    /// Abilities that this kernel lacks, each with its consequence for the uplink.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// Number of frames from outside that the kernel has dropped since this daemon was started, or
    /// since an XDP socket was opened: the fabric did not read them in time, a virtio-net header
    /// cannot describe them, or they do not fit into a chunk of an XDP socket.
    #[serde(default)]
    pub lost: u64,
}

/// A use that the host has for a network interface, and that an uplink would end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InterfaceUse {
    /// The interface is a part of a bridge or bond.
    Member {
        /// Name of the bridge or bond.
        of: String,
        /// Its kind, such as `bridge`.
        kind: String,
    },
    /// The interface has this IP address. The IPv6 address that each interface gives itself is no
    /// use.
    Address(IpAddr),
    /// A route leads through the interface.
    Route,
    /// Another interface is stacked on this one: a VLAN, macvlan or the like.
    Below(String),
    /// An interface with this Ethernet address is stacked on this one in another network namespace.
    BelowElsewhere(MacAddr),
}

impl InterfaceUse {
    /// Returns what the interface does, as the end of a sentence about it.
    pub fn what(&self) -> String {
        match self {
            Self::Member { of, kind } => format!("is a part of the {kind} `{of}`"),
            Self::Address(ip) => format!("has the address {ip} of this host"),
            Self::Route => "has a route of this host".to_owned(),
            Self::Below(other) => format!("carries the interface `{other}`"),
            Self::BelowElsewhere(mac) => {
                format!(
                    "also receives for the address {mac}, probably that of an interface on it in another network \
                     namespace"
                )
            }
        }
    }

    /// Returns how to end the use of the interface `name`.
    pub fn way_out(&self, name: &str) -> String {
        match self {
            Self::Member { .. } => format!("take it out first: ip link set {name} nomaster"),
            Self::Address(_) => format!(
                "move the address to another interface, or do without it: ip addr flush dev {name}; do not do \
                 this over a connection that uses it"
            ),
            Self::Route => format!("remove the route first: ip route flush dev {name}"),
            Self::Below(other) => format!("remove the interface above it first: ip link del {other}"),
            Self::BelowElsewhere(_) => {
                "remove the interface above it first, which may be that of a container in a macvlan network"
                    .to_owned()
            }
        }
    }
}
