//! vSwitches, port groups, and the ports that are not VMs' (SPEC rows VN-1, VN-2, VN-4, VN-9, VN-10).

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::coalescing::NicCoalescing;
use crate::link::Link;
use crate::shaping::Shaping;
use crate::{MacAddr, Name, QueuePairs, Vlan};

/// A virtual switch. Without uplinks it is a private network (VMnet, VN-2): memory only, invisible outside.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VSwitchSpec {}

/// What a vSwitch is doing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VSwitchStatus {
    /// Ports attached through all its port groups.
    pub ports: u32,
}

/// A named set of ports of one vSwitch with one policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PortGroupSpec {
    /// The vSwitch it belongs to.
    pub vswitch: Name,
    /// 0 (default): no VLAN; 1 to 4094: the switch keeps this group in that VLAN, and guests see untagged frames (VST);
    /// 4095 or ranges such as `"10-20,30"`: guests tag their frames themselves (VGT). Ports of one vSwitch that have a
    /// VLAN in common reach each other in it, whatever their groups, as on ESX.
    #[serde(default)]
    pub vlan: Vlan,
    /// Security policy (VN-10).
    #[serde(default)]
    pub security: Security,
    /// Traffic shaping of each of its ports by itself, not of their sum (VN-4).
    #[serde(default, skip_serializing_if = "Shaping::is_none")]
    pub shaping: Shaping,
    /// Learn the addresses behind each port: for guests that are switches themselves. Needs `forged_transmits`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac_learning: Option<MacLearning>,
}

/// Security policy of a port group; each rejects unless set (VN-10).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Security {
    /// A guest may see frames for others.
    pub promiscuous: bool,
    /// A guest may give its card another address. The switch is not told what a guest sets, so the address that the
    /// port last sent from is the one at which it receives, and its configured one no longer is.
    pub mac_changes: bool,
    /// A guest may send from an address at which it does not receive.
    pub forged_transmits: bool,
}

/// MAC learning of a port group: which addresses are behind a port is learnt from what it sends, per VLAN. Unicast for an
/// address that nobody is known to have goes to the learning ports. A vNIC's configured address is never learnt elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MacLearning {
    /// Most addresses learnt per port, 1 to 4096 (default). Frames from further ones pass, but answers are flooded.
    #[schema(minimum = 1, maximum = 4096)]
    pub limit: u16,
    /// Seconds after which an address that sent nothing is forgotten, 10 to 86400; default 300.
    #[schema(minimum = 10, maximum = 86400)]
    pub ageing_s: u32,
}

impl MacLearning {
    /// Most addresses per port.
    pub const MAX_LIMIT: u16 = 4096;
    /// Seconds of ageing, least and most.
    pub const AGEING_S: std::ops::RangeInclusive<u32> = 10..=86_400;
}

impl Default for MacLearning {
    fn default() -> Self {
        Self { limit: Self::MAX_LIMIT, ageing_s: 300 }
    }
}

/// What a port group is doing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PortGroupStatus {
    /// Ports attached.
    pub ports: u32,
}

/// A network namespace on a TAP port: ordinary programs become end points (`taut netns attach`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NetnsSpec {
    /// The namespace, as `ip netns` names it. Made when it does not exist, and then removed on detach.
    pub netns: String,
    /// The port group its interface is on.
    pub portgroup: Name,
    /// Address of the interface; derived from the name when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<MacAddr>,
    /// IPv4 address and prefix given to the interface.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "crate::ip::optional")]
    #[schema(value_type = Option<String>, example = "10.0.0.1/24")]
    pub ip: Option<Ipv4Net>,
    /// Name of the interface inside the namespace, at most 15 bytes.
    #[serde(default = "default_ifname")]
    pub ifname: String,
}

fn default_ifname() -> String {
    "taut0".to_owned()
}

/// What a namespace attachment is doing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NetnsStatus {
    /// Is the TAP port forwarding?
    pub attached: bool,
    /// Was the namespace made by taut (and will be removed with the attachment)?
    pub made_netns: bool,
    /// Why it is not attached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A vhost-user front end that taut did not start: DPDK's virtio-user, user-mode Linux, another VMM
/// (`taut port attach`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExternalPortSpec {
    /// The port group it is on.
    pub portgroup: Name,
    /// Absolute path of the Unix socket.
    pub socket: String,
    /// Who listens on the socket.
    #[serde(default)]
    pub role: SocketRole,
    /// The address that the switch knows for it; derived from the name when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<MacAddr>,
    /// Pairs of a receive and a transmit queue offered.
    #[serde(default, skip_serializing_if = "QueuePairs::is_default")]
    pub queues: QueuePairs,
    /// Offer checksum and segmentation offloads.
    #[serde(default)]
    pub offloads: bool,
    /// Moderation of interrupts and kicks (VN-11), as a vNIC's.
    #[serde(default, skip_serializing_if = "NicCoalescing::is_default")]
    pub coalescing: NicCoalescing,
}

/// Which end of a vhost-user socket taut is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SocketRole {
    /// The front end listens, taut connects, and connects again when the front end was away.
    #[default]
    Connect,
    /// taut listens; front ends connect, one at a time.
    Listen,
}

/// What an external port is doing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExternalPortStatus {
    /// Port number in the fabric.
    pub port: Option<u32>,
    /// State of the link.
    pub link: Link,
    /// Why it is not up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
