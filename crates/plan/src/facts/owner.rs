//! The owner of a port of the fabric.

use std::fmt;

use taut_api::{MacAddr, Name};

/// The owner of a port. Users, the store and the fabric see its text: `vm/NAME/nic0`,
/// `vm/NAME/vmci`, `netns/NAME`, `external/NAME`, `netdev/NAME` or `uplink/NAME`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// The vNIC of a VM with this index.
    Nic(Name, usize),
    /// The VMCI device of a VM. Its port has no port group and no Ethernet address.
    Vmci(Name),
    /// A namespace attachment.
    Netns(Name),
    /// An external port.
    External(Name),
    /// A network interface on a port group.
    Netdev(Name),
    /// An uplink. Its port has no port group and no Ethernet address.
    Uplink(Name),
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nic(vm, index) => write!(f, "vm/{vm}/nic{index}"),
            Self::Vmci(vm) => write!(f, "vm/{vm}/vmci"),
            Self::Netns(name) => write!(f, "netns/{name}"),
            Self::External(name) => write!(f, "external/{name}"),
            Self::Netdev(name) => write!(f, "netdev/{name}"),
            Self::Uplink(name) => write!(f, "uplink/{name}"),
        }
    }
}

impl Owner {
    /// The MAC address of a port whose document names none.
    pub fn derived_mac(&self) -> MacAddr {
        match self {
            Self::Nic(vm, index) => MacAddr::derived(vm.as_str(), *index),
            Self::Vmci(_) | Self::Netns(_) | Self::External(_) | Self::Netdev(_) | Self::Uplink(_) => {
                MacAddr::derived(&self.to_string(), 0)
            }
        }
    }

    /// The document behind the port as events and messages name it: `vm/NAME`, `netns/NAME` …
    pub fn document(&self) -> String {
        match self {
            Self::Nic(vm, _) | Self::Vmci(vm) => format!("vm/{vm}"),
            Self::Netns(_) | Self::External(_) | Self::Netdev(_) | Self::Uplink(_) => self.to_string(),
        }
    }
}
