//! The steps by which the host becomes what users asked for.

use taut_api::fabric::PortId;
use taut_api::link::WantedLink;
use taut_api::{Bytes, Name};

use super::owner::Owner;

/// A step of the plan. Repeating a step that was already taken does no harm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Start a VM's process.
    StartVm(Name),
    /// Ask a VM to shut down.
    StopVm(Name),
    /// End the process of a VM that no document describes, and remove its run directory.
    RemoveVm(Name),
    /// Connect to the socket of a vNIC and hand the connection to its port.
    ConnectNic {
        /// The VM.
        vm: Name,
        /// Index of the vNIC.
        index: usize,
        /// The vNIC's port.
        port: PortId,
    },
    /// Listen for QEMU, which connects for the VM's VMCI device, and hand the listening socket to
    /// the device's port.
    ListenForVmci {
        /// The VM.
        vm: Name,
        /// The device's port.
        port: PortId,
    },
    /// Connect to the socket of a microguest's VMCI device and hand the connection to its port.
    ConnectVmci {
        /// The VM.
        vm: Name,
        /// The device's port.
        port: PortId,
    },
    /// Listen for programs of the host that want to reach the guest over VMCI, and hand the
    /// listening socket to the device's port.
    ListenForHost {
        /// The VM.
        vm: Name,
        /// The device's port.
        port: PortId,
    },
    /// Set the limits of a running VM's disk through QEMU's monitor.
    LimitDisk(Name),
    /// Add memory for queue pairs to a running VM through QEMU's monitor, or end what was begun.
    AddQueuePairs {
        /// The VM.
        vm: Name,
        /// Memory that it is to get while it runs; 0 if it is to get none.
        size: Bytes,
    },
    /// Take the link of a vNIC up or down through QEMU's monitor, so that the guest sees it.
    SetLink {
        /// The VM.
        vm: Name,
        /// Index of the vNIC.
        index: usize,
        /// The wanted link.
        link: WantedLink,
    },
    /// Remove the sockets of a VMCI device that the VM no longer has, or of a VM that is off.
    RemoveVmciSockets {
        /// The VM.
        vm: Name,
    },
    /// Replace a VMCI device whose connection to the fabric is lost; QEMU never reconnects it.
    ReplugVmci {
        /// The VM.
        vm: Name,
    },
    /// Create the namespace and the TAP device where they are missing, and hand the TAP device to
    /// its port.
    AttachNetns {
        /// The attachment.
        name: Name,
        /// The attachment's port.
        port: PortId,
    },
    /// Remove the TAP device, and the namespace if taut created it for the attachment.
    DetachNetns(Name),
    /// Connect to an external front end, or listen for it, and hand the socket to its port.
    AttachExternal {
        /// The external port.
        name: Name,
        /// The fabric's port.
        port: PortId,
    },
    /// Stop listening for an external front end and remove the socket.
    DetachExternal(Name),
    /// Separate an interface from the host, and hand a packet socket that is bound to it to its
    /// port.
    AttachNetdev {
        /// The interface.
        name: Name,
        /// The interface's port.
        port: PortId,
    },
    /// Give an interface back to the host as it was.
    DetachNetdev(Name),
    /// Set up the interface of an uplink, and hand a packet socket that is bound to it to its port.
    AttachUplink {
        /// The uplink.
        name: Name,
        /// The uplink's port.
        port: PortId,
    },
    /// Give the interface of an uplink back to the host as it was.
    DetachUplink(Name),
    /// Set the MTU of the device behind a port for that of its vSwitch.
    SetMtu(Owner),
}

/// A VM that is wanted on and cannot be started on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The VM.
    pub vm: Name,
    /// The reason, with numbers.
    pub reason: String,
}
