//! What a plan says.

use std::collections::{BTreeMap, BTreeSet};

use taut_api::Name;
use taut_api::fabric::{FabricConfig, PortId};

use crate::placement::Grant;
use crate::shares::Entitlement;

/// The outcome of [`crate::plan()`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// To do, in this order, after the fabric has its configuration. Each may fail alone and is planned again.
    pub actions: Vec<Action>,
    /// What is wanted and will not be done.
    pub refusals: Vec<Refusal>,
    /// The fabric's whole wanted state; its revision is the sender's to count.
    pub fabric: FabricConfig,
    /// Exclusive pCPUs of VMs that run or are to run.
    pub exclusive: BTreeMap<Name, Grant>,
    /// pCPUs that the vCPUs of other VMs are bound to.
    pub bound: BTreeMap<Name, BTreeSet<u32>>,
    /// Nodes to which the memory of running VMs is moved, unless it is there.
    pub memory: BTreeMap<Name, BTreeSet<u32>>,
    /// How long KVM is to poll for halted vCPUs at least, in nanoseconds.
    pub poll_ns: Option<u64>,
    /// What each VM that runs or is to run gets of CPU and memory; empty while nobody asks for anything.
    pub entitled: BTreeMap<Name, Entitlement>,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Start a VM's process.
    StartVm(Name),
    /// Ask a VM to end.
    StopVm(Name),
    /// End the process of a VM that is no longer described, and remove its run directory.
    RemoveVm(Name),
    /// Connect to the socket of a VM's card and hand it to its port.
    ConnectNic {
        /// The VM.
        vm: Name,
        /// Index of the card.
        index: usize,
        /// Its port.
        port: PortId,
    },
    /// Listen for QEMU, the front end of a VM's VMCI device, and hand the listening socket to the device's port.
    ListenForVmci {
        /// The VM.
        vm: Name,
        /// The device's port.
        port: PortId,
    },
    /// Connect to the socket of a microguest's VMCI device and hand it to its port.
    ConnectVmci {
        /// The VM.
        vm: Name,
        /// The device's port.
        port: PortId,
    },
    /// Listen for programs of the host that want to reach a VM's VMCI device, and hand the listening socket to its port.
    ListenForHost {
        /// The VM.
        vm: Name,
        /// The device's port.
        port: PortId,
    },
    /// Tell a running VM's monitor the limits of its disk.
    LimitDisk(Name),
    /// Remove the sockets that led to a VM's VMCI device: it has none any more, or is off.
    RemoveVmciSockets {
        /// The VM.
        vm: Name,
    },
    /// QEMU's VMCI device has lost the fabric for good: put another one in its place.
    ReplugVmci {
        /// The VM.
        vm: Name,
    },
    /// Make the namespace and its TAP device as needed, and hand the device to its port.
    AttachNetns {
        /// The attachment.
        name: Name,
        /// Its port.
        port: PortId,
    },
    /// Remove the TAP device, and the namespace if it was made for the attachment.
    DetachNetns(Name),
    /// Connect to an external front end, or listen for one, and hand the socket to its port.
    AttachExternal {
        /// The external port.
        name: Name,
        /// Its port.
        port: PortId,
    },
    /// Stop listening for an external front end and remove the socket.
    DetachExternal(Name),
}

/// Something wanted that a rule does not allow on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The VM.
    pub vm: Name,
    /// Why, with numbers.
    pub reason: String,
}
