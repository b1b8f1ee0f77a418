//! Everything that users asked for.

use std::collections::BTreeMap;
use std::fmt;

use taut_api::fabric::config::{SocketWorker, WorkerConfig};
use taut_api::host::HostSettings;
use taut_api::network::{ExternalPortSpec, NetnsSpec, PortGroupSpec, VSwitchSpec};
use taut_api::vm::VmDesired;
use taut_api::{MacAddr, Name};

use crate::Numbers;

/// The documents of the store, and the numbers that were given to what they describe.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Desired {
    /// Virtual machines.
    pub vms: BTreeMap<Name, VmDesired>,
    /// vSwitches.
    #[allow(
        clippy::zero_sized_map_values,
        reason = "a vSwitch is a document like the others, and uplinks will be in it"
    )]
    pub vswitches: BTreeMap<Name, VSwitchSpec>,
    /// Port groups.
    pub portgroups: BTreeMap<Name, PortGroupSpec>,
    /// Namespaces on TAP ports.
    pub netns: BTreeMap<Name, NetnsSpec>,
    /// Front ends that taut did not start.
    pub external: BTreeMap<Name, ExternalPortSpec>,
    /// Settings of the host.
    pub host: HostSettings,
    /// Port and segment numbers, kept by [`crate::numbering::assign`].
    pub numbers: Numbers,
    /// How the fabric's workers behave.
    pub workers: WorkerConfig,
    /// How the fabric's thread for VMCI sockets behaves.
    pub socket_worker: SocketWorker,
}

/// Whose a port is. Its text (`vm/NAME/nic0`, `vm/NAME/vmci`, `netns/NAME`, `external/NAME`) is what users, the store and the
/// fabric see.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// A VM's card of this index.
    Nic(Name, usize),
    /// A VM's VMCI device. It is on no port group and has no Ethernet address.
    Vmci(Name),
    /// A namespace attachment.
    Netns(Name),
    /// An external port.
    External(Name),
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nic(vm, index) => write!(f, "vm/{vm}/nic{index}"),
            Self::Vmci(vm) => write!(f, "vm/{vm}/vmci"),
            Self::Netns(name) => write!(f, "netns/{name}"),
            Self::External(name) => write!(f, "external/{name}"),
        }
    }
}

impl Owner {
    /// The address of a port whose document names none.
    pub fn derived_mac(&self) -> MacAddr {
        match self {
            Self::Nic(vm, index) => MacAddr::derived(vm.as_str(), *index),
            Self::Vmci(_) | Self::Netns(_) | Self::External(_) => MacAddr::derived(&self.to_string(), 0),
        }
    }

    /// What events and messages call the document behind the port: `vm/NAME`, `netns/NAME` …
    pub fn document(&self) -> String {
        match self {
            Self::Nic(vm, _) | Self::Vmci(vm) => format!("vm/{vm}"),
            Self::Netns(_) | Self::External(_) => self.to_string(),
        }
    }
}

impl Desired {
    /// Every VMCI device that a document describes.
    pub fn sockets(&self) -> impl Iterator<Item = Owner> {
        let has_one = |(_, vm): &(&Name, &VmDesired)| vm.vm.vmci.is_some();
        self.vms.iter().filter(has_one).map(|(name, _)| Owner::Vmci(name.clone()))
    }

    /// Every port of a vSwitch that a document describes, with its port group and address.
    pub fn ports(&self) -> impl Iterator<Item = (Owner, &Name, MacAddr)> {
        let resolve = |owner: Owner, portgroup, mac: Option<MacAddr>| {
            let mac = mac.unwrap_or_else(|| owner.derived_mac());
            (owner, portgroup, mac)
        };
        let nics = self.vms.iter().flat_map(move |(name, vm)| {
            let cards = vm.vm.nics.iter().enumerate();
            cards.map(move |(index, nic)| resolve(Owner::Nic(name.clone(), index), &nic.portgroup, nic.mac))
        });
        let netns = self.netns.iter();
        let netns =
            netns.map(move |(name, spec)| resolve(Owner::Netns(name.clone()), &spec.portgroup, spec.mac));
        let external = self.external.iter();
        let external = external
            .map(move |(name, spec)| resolve(Owner::External(name.clone()), &spec.portgroup, spec.mac));
        nics.chain(netns).chain(external)
    }
}
