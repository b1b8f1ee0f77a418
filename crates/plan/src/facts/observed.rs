//! Everything that exists on this host, as it was last observed.

use std::collections::BTreeMap;

use taut_api::fabric::PortId;
use taut_api::network::{ExternalPortSpec, NetnsSpec};
use taut_api::tune::TuneState;
use taut_api::uplink::XdpMode;
use taut_api::{MacAddr, Mtu, Name};

use super::fabric::FabricSeen;
use super::host::HostSeen;
use super::vm::{Process, VmSeen};

/// The host, the fabric and the VMs, as they were last observed.
///
/// The changes that enforcement made on the host are not here: a rule reads them from
/// [`taut_api::enforcement::HostReport`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Observed {
    /// Resources of the host.
    pub host: HostSeen,
    /// The fabric and its ports.
    pub fabric: FabricSeen,
    /// VMs that have a process, or had one that failed.
    pub vms: BTreeMap<Name, VmSeen>,
    /// Namespaces that were attached, including those that are no longer wanted.
    pub netns: BTreeMap<Name, NetnsSeen>,
    /// External ports that were attached, including those that are no longer wanted.
    pub external: BTreeMap<Name, ExternalSeen>,
    /// Interfaces on port groups that were attached, including those that are no longer wanted.
    pub netdevs: BTreeMap<Name, InterfaceSeen>,
    /// Uplinks that were attached, including those that are no longer wanted.
    pub uplinks: BTreeMap<Name, InterfaceSeen>,
    /// Dense mode, as the last test of the host's load left it.
    pub tune: TuneState,
    /// `taut host restore` put back everything that was changed on the host. True until a document
    /// changes.
    pub restored: bool,
}

/// Changes of the host for a namespace attachment.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct NetnsSeen {
    /// The document at the time of the attachment.
    pub spec: NetnsSpec,
    /// taut created the namespace for this attachment.
    pub made_netns: bool,
    /// Identity of the namespace, which tells it from a later one of the same name; none until it
    /// is attached.
    #[serde(default)]
    pub namespace: Option<String>,
    /// MTU that its interface was set to last.
    #[serde(default)]
    pub mtu: Option<Mtu>,
    /// The interface is gone: somebody deleted it, or the namespace.
    #[serde(skip)]
    pub lost: bool,
}

/// Changes of the host for an external port.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ExternalSeen {
    /// The document at the time of the attachment.
    pub spec: ExternalPortSpec,
}

/// Changes of the host for an interface that is an uplink or on a port group, and what is seen of
/// it.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct InterfaceSeen {
    /// Boot of the host in which this was noted. The next one has undone all changes.
    #[serde(default)]
    pub boot: String,
    /// The kernel's number of the interface, which tells it from a later one of the same name.
    pub index: u32,
    /// The interface was down before, so it is set down again.
    pub was_down: bool,
    /// taut made the queueing discipline (`clsact`) of the filter that keeps the interface's frames
    /// from the host.
    pub made_filters: bool,
    /// Ethernet address of the interface.
    pub mac: Option<MacAddr>,
    /// Bytes of the longest packet that the interface sends.
    pub mtu: u32,
    /// MTU of the vSwitch that the interface was set for last.
    #[serde(default)]
    pub mtu_for: Option<Mtu>,
    /// The interface has another MTU than it had before, which it gets back.
    #[serde(default)]
    pub raised: Option<RaisedMtu>,
    /// Abilities that the kernel lacks.
    pub missing: Vec<String>,
    /// Mode of its XDP socket, if it has one.
    #[serde(default)]
    pub xdp: Option<XdpMode>,
    /// The interface is set up.
    #[serde(skip)]
    pub is_up: bool,
    /// The interface has a carrier.
    #[serde(skip)]
    pub has_carrier: bool,
    /// Speed of the interface's link in Mbit/s, if the interface states it.
    #[serde(default)]
    pub speed_mbit: Option<u64>,
    /// This daemon has looked at it before, so a change of the carrier is news.
    #[serde(skip)]
    pub is_known: bool,
    /// Reason that the socket must be replaced.
    #[serde(skip)]
    pub lost: Option<String>,
    /// Number of frames that the kernel has dropped since this daemon was started, or since its XDP
    /// socket was opened.
    #[serde(skip)]
    pub lost_frames: u64,
    /// Number of frames that its XDP socket had lost at the last look, since it was opened.
    #[serde(skip)]
    pub lost_by_xdp: u64,
    /// Number of looks in a row at which the kernel had dropped all frames since the look before
    /// although the socket's ring was empty.
    #[serde(skip)]
    pub stalled_looks: u32,
}

/// A change of an interface's MTU, noted before it is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct RaisedMtu {
    /// MTU before the first change, which the interface gets back.
    pub from: u32,
    /// MTU before this change: the interface has it still if the change was not made.
    pub was: u32,
    /// MTU after this change.
    pub to: u32,
}

impl RaisedMtu {
    /// Returns whether the interface has `now` from before this change or by it. Another MTU was
    /// set by another program, and stays.
    pub fn explains(self, now: u32) -> bool {
        now == self.was || now == self.to
    }

    /// Returns what is left to undo after this change was made.
    pub fn made(self) -> Option<Self> {
        (self.to != self.from).then_some(Self { was: self.to, ..self })
    }
}

impl Observed {
    /// The process of a VM, if it has one.
    pub fn process(&self, vm: &Name) -> Option<&Process> {
        self.vms.get(vm)?.process.as_ref()
    }

    /// Returns whether the port has a socket or device that serves it.
    pub fn attached(&self, port: PortId) -> bool {
        self.fabric.ports.get(&port).is_some_and(|seen| seen.attached)
    }

    /// Returns whether the fabric has the port and the port has no socket or device yet. A port in
    /// quarantine gets none.
    pub fn awaits_attachment(&self, port: PortId) -> bool {
        self.fabric.ports.get(&port).is_some_and(|seen| !seen.attached) && !self.is_quarantined(port)
    }

    /// Returns whether the port's front end has harmed the fabric and its VM was not restarted
    /// since.
    pub fn is_quarantined(&self, port: PortId) -> bool {
        match self.fabric.quarantined.get(&port) {
            Some(Some(pid)) => {
                self.vms.values().filter_map(|vm| vm.process.as_ref()).any(|process| process.pid == *pid)
            }
            Some(None) => true,
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::PortSeen;

    #[test]
    fn a_port_in_quarantine_is_not_attached_until_its_vm_has_another_process() {
        let port = PortId(3);
        let mut observed = Observed::default();
        observed.fabric.ports.insert(port, PortSeen::default());
        let run = |observed: &mut Observed, pid| {
            let process = Some(Process { pid, ..Process::default() });
            observed.vms.insert("a".parse().unwrap(), VmSeen { process, ..VmSeen::default() });
        };
        run(&mut observed, 7);
        assert!(observed.awaits_attachment(port));
        observed.fabric.quarantined.insert(port, Some(7));
        assert!(!observed.awaits_attachment(port));
        run(&mut observed, 8);
        assert!(observed.awaits_attachment(port));
        observed.fabric.quarantined.insert(port, None);
        assert!(!observed.awaits_attachment(port), "a front end without a VM comes back by its user only");
    }
}
