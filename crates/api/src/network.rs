//! vSwitches, port groups, namespace attachments and external ports.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::coalescing::NicCoalescing;
use crate::link::Link;
use crate::mirror::Mirror;
use crate::multicast::{MulticastFilter, MulticastState};
use crate::network_io::{NetworkIo, TrafficClass};
use crate::shaping::Shaping;
use crate::teaming::Teaming;
use crate::{MacAddr, Mtu, Name, QueuePairs, Vlan};

/// A virtual switch. Without an uplink it is a private network: in memory only, invisible outside.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VSwitchSpec {
    /// MTU: longer packets are dropped. Namespaces, uplinks and interfaces on port groups follow at
    /// once; a VM is told when it starts.
    #[serde(default, skip_serializing_if = "Mtu::is_default")]
    pub mtu: Mtu,
    /// Uplinks that its ports use, and what follows when one loses its link.
    #[serde(default, skip_serializing_if = "Teaming::is_default")]
    pub teaming: Teaming,
    /// Network I/O control of its uplinks.
    #[serde(default, skip_serializing_if = "NetworkIo::is_default")]
    pub network_io: NetworkIo,
    /// Port mirroring sessions by name, at most 16.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = std::collections::HashMap<String, Mirror>)]
    pub mirrors: BTreeMap<Name, Mirror>,
    /// Ports that take frames for multicast groups.
    #[serde(default, skip_serializing_if = "MulticastFilter::is_default")]
    pub multicast: MulticastFilter,
}

impl VSwitchSpec {
    /// Largest number of mirroring sessions.
    pub const MOST_MIRRORS: usize = 16;
}

/// State of a vSwitch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VSwitchStatus {
    /// Number of ports attached through all its port groups.
    pub ports: u32,
    /// Groups that its guests have joined, if it has snooping.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub multicast: Option<MulticastState>,
}

/// A named set of ports of one vSwitch with one policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PortGroupSpec {
    /// vSwitch that the port group belongs to.
    pub vswitch: Name,
    /// VLAN of the ports. 0 (default): none. 1 to 4094: the switch keeps the ports in that VLAN,
    /// and guests see untagged frames (VST). 4095, or ranges such as `"10-20,30"`: guests tag their
    /// frames (VGT). As on ESX, ports of one vSwitch with a common VLAN reach each other in it,
    /// also across port groups.
    #[serde(default)]
    pub vlan: Vlan,
    /// Security policy.
    #[serde(default)]
    pub security: Security,
    /// Traffic shaping of each port by itself, not of their sum.
    #[serde(default, skip_serializing_if = "Shaping::is_none")]
    pub shaping: Shaping,
    /// MAC learning behind each port, for guests that are switches. Requires `forged_transmits`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac_learning: Option<MacLearning>,
    /// Teaming of its ports; absent: that of the vSwitch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub teaming: Option<Teaming>,
    /// Class of its ports' traffic under network I/O control; default `virtualmachine`.
    #[serde(default, skip_serializing_if = "TrafficClass::is_default")]
    pub traffic_class: TrafficClass,
}

/// Security policy of a port group. Each item is rejected unless it is allowed here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Security {
    /// A guest may receive frames for other addresses.
    pub promiscuous: bool,
    /// A guest may change its card's address. The port receives at the new one, and no longer at
    /// its configured one. Only QEMU's virtio cards tell the new one; of other ports, it is the
    /// address that they last sent from. If changes are rejected, a virtio card of QEMU receives
    /// nothing while the addresses differ.
    pub mac_changes: bool,
    /// A guest may send from an address at which it does not receive.
    pub forged_transmits: bool,
}

/// MAC learning of a port group. The switch learns addresses behind a port per VLAN from the frames
/// that the port sends. Unicast for an unknown address goes to the learning ports. A vNIC's
/// configured address is never learnt at another port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MacLearning {
    /// Maximum number of addresses learnt per port, 1 to 4096 (default). Frames from further
    /// addresses pass, but answers to them are flooded.
    #[schema(minimum = 1, maximum = 4096)]
    pub limit: u16,
    /// Seconds of silence after which an address is forgotten, 10 to 86400; default 300.
    #[schema(minimum = 10, maximum = 86400)]
    pub ageing_s: u32,
}

impl MacLearning {
    /// Maximum number of addresses per port.
    pub const MAX_LIMIT: u16 = 4096;
    /// Range of the ageing time in seconds.
    pub const AGEING_S: std::ops::RangeInclusive<u32> = 10..=86_400;
}

impl Default for MacLearning {
    fn default() -> Self {
        Self { limit: Self::MAX_LIMIT, ageing_s: 300 }
    }
}

/// State of a port group.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PortGroupStatus {
    /// Number of attached ports.
    pub ports: u32,
    /// Owners of the ports that have a shaping of their own, such as `vm/web1/nic0`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub own_shaping: Vec<String>,
}

/// A network namespace on a TAP port, which makes ordinary programs end points (`taut netns
/// attach`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NetnsSpec {
    /// Name of the namespace, as `ip netns` lists it. taut creates a namespace that does not exist,
    /// and removes it on detach.
    pub netns: String,
    /// Port group that the interface is connected to.
    pub portgroup: Name,
    /// Ethernet address of the interface; derived from the name if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<MacAddr>,
    /// IPv4 address and prefix length of the interface.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "crate::ip::optional")]
    #[schema(value_type = Option<String>, example = "10.0.0.1/24")]
    pub ip: Option<Ipv4Net>,
    /// Router to other networks, in the network of `ip`: the default route of the namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "10.0.0.254")]
    pub gateway: Option<Ipv4Addr>,
    /// Name of the interface inside the namespace, at most 15 bytes.
    #[serde(default = "default_ifname")]
    pub ifname: String,
}

fn default_ifname() -> String {
    "taut0".to_owned()
}

/// State of a namespace attachment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NetnsStatus {
    /// True if the TAP port forwards frames.
    pub attached: bool,
    /// True if taut created the namespace and will remove it with the attachment.
    pub made_netns: bool,
    /// Reason that the namespace is not attached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A port for a vhost-user front end that taut did not start, such as DPDK's virtio-user, user-mode
/// Linux, or another VMM (`taut port attach`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExternalPortSpec {
    /// Port group that the port is on.
    pub portgroup: Name,
    /// Absolute path of the Unix socket.
    pub socket: String,
    /// Which end listens on the socket.
    #[serde(default)]
    pub role: SocketRole,
    /// Ethernet address that the switch knows for the front end; derived from the name if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<MacAddr>,
    /// Number of queue pairs offered.
    #[serde(default, skip_serializing_if = "QueuePairs::is_default")]
    pub queues: QueuePairs,
    /// Offer checksum and segmentation offloads.
    #[serde(default)]
    pub offloads: bool,
    /// Interrupt and kick moderation, as for a vNIC.
    #[serde(default, skip_serializing_if = "NicCoalescing::is_default")]
    pub coalescing: NicCoalescing,
    /// Admit memory that is not sealed against shrinking, and event descriptors that are no
    /// eventfds. Only a trusted front end may bring these: with them it can disturb all guests of
    /// the host.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub trusted: bool,
}

/// taut's end of a vhost-user socket.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SocketRole {
    /// The front end listens; taut connects, and reconnects after the front end was gone.
    #[default]
    Connect,
    /// taut listens; front ends connect, one at a time.
    Listen,
}

/// State of an external port.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExternalPortStatus {
    /// Number of the port in the fabric.
    pub port: Option<u32>,
    /// State of the link.
    pub link: Link,
    /// Reason that the link is not up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
