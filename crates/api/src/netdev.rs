//! Network interfaces of the host as ports of a vSwitch: most often the TAP device of a VM that
//! another program has started, such as libvirt's `vnet0` (row VN-15).

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::link::Link;
use crate::{MacAddr, Mtu, Name};

/// An interface on a port group. Its name is that of the interface.
///
/// The interface stays where it is, for instance in a bridge, but neither side reaches the other:
/// what it receives goes to its port, and only its port sends to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NetdevSpec {
    /// Port group of the port.
    pub portgroup: Name,
    /// Ethernet address at the other end, such as that of the VM's card. Absent: the one that the
    /// bridge of the interface has learned there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<MacAddr>,
}

/// State of an interface on a port group.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NetdevStatus {
    /// Number of the port in the fabric.
    pub port: Option<u32>,
    /// True if the port sends and receives through the interface.
    pub attached: bool,
    /// State of the interface's link.
    pub link: Link,
    /// Reason that the interface is not attached, or that its link is not up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Bytes of the longest packet that the interface sends, without the Ethernet header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// MTU of the vSwitch, if that of the interface is smaller: somebody has changed it, or it
    /// cannot be set. Longer packets are dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vswitch_mtu: Option<Mtu>,
    /// Number of frames from the interface that the kernel has dropped since this daemon was
    /// started.
    #[serde(default)]
    pub lost: u64,
}
