//! What there is: processes, sockets, namespaces, and what the fabric says.

use std::collections::{BTreeMap, BTreeSet};

use taut_api::fabric::PortId;
use taut_api::host::Cpu;
use taut_api::link::Link;
use taut_api::machine::DiskLimits;
use taut_api::network::{ExternalPortSpec, NetnsSpec};
use taut_api::tune::TuneState;
use taut_api::vm::VmKind;
use taut_api::{Bytes, Name};

use crate::numa::MemoryPlace;

/// What was seen when the plan was asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Observed {
    /// Memory of the host.
    pub memory_total: Bytes,
    /// The host's swap.
    pub swap_total: Bytes,
    /// Free huge pages of 2 MiB on each NUMA node.
    pub huge_pages: BTreeMap<u32, Bytes>,
    /// Who enforces what VMs may use.
    pub controllers: Controllers,
    /// VMs whose shares and limits are in force.
    pub enforced: BTreeSet<Name>,
    /// What of them could not be set, and why.
    pub group_problems: BTreeMap<Name, String>,
    /// VMs whose disk shares count for nothing, and why.
    pub weightless: BTreeMap<Name, String>,
    /// Every on-line pCPU.
    pub cpus: Vec<Cpu>,
    /// Nominal frequency of a pCPU in MHz; 0 when the host does not say.
    pub cpu_mhz: u32,
    /// pCPUs that latency-sensitive VMs own, in the order of their vCPUs.
    pub exclusive: BTreeMap<Name, Vec<u32>>,
    /// Those of them whose vCPUs are all there.
    pub in_force: BTreeSet<Name>,
    /// VMs whose vCPUs are not where the plan binds them without owning pCPUs, and why.
    pub unbound: BTreeMap<Name, String>,
    /// VMs whose memory is moved to other nodes while they run, or was, and how far that is.
    pub moves: BTreeMap<Name, MemoryMove>,
    /// What could not be done on the host for exclusive pCPUs.
    pub host_problems: Vec<String>,
    /// Interrupts that stay on exclusive pCPUs: the pCPUs, which it is, and why it was not moved.
    pub fixed_interrupts: Vec<(BTreeSet<u32>, String, String)>,
    /// The user took back everything that was changed on the host, until documents change again.
    pub restored: bool,
    /// Is it known how guests run here (which QEMU, which accelerator)?
    pub probed: bool,
    /// The fabric answers and has told the state of all its ports.
    pub fabric_ready: bool,
    /// The fabric's ports, as far as it has told their state. No other may be attached.
    pub ports: BTreeMap<PortId, PortSeen>,
    /// VMs that have a process, or had one that failed.
    pub vms: BTreeMap<Name, VmSeen>,
    /// Namespaces that were attached, whether or not they are still wanted.
    pub netns: BTreeMap<Name, NetnsSeen>,
    /// External ports that were attached, whether or not they are still wanted.
    pub external: BTreeMap<Name, ExternalSeen>,
    /// Dense mode, as of the last test of the load.
    pub tune: TuneState,
}

/// Memory of a running VM on its way to other nodes of the host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemoryMove {
    /// The nodes.
    pub nodes: BTreeSet<u32>,
    /// So much has been moved there.
    pub moved: Bytes,
    /// So much has not been looked at yet.
    pub ahead: Bytes,
    /// So much could not be moved when it was tried last.
    pub left: Bytes,
    /// Why, or why nothing could be looked at.
    pub why: Option<String>,
    /// How often it was tried.
    pub tries: u32,
    /// It is not tried again.
    pub done: bool,
}

/// The kernel's controllers of what control groups may use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Controllers {
    /// Of CPU time.
    pub cpu: Hierarchy,
    /// Of memory.
    pub memory: Hierarchy,
    /// Of pCPUs and nodes.
    pub cpuset: Hierarchy,
    /// Of disks.
    pub disk: Hierarchy,
}

/// Where a controller is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Hierarchy {
    /// The kernel has none, or it cannot be used here.
    #[default]
    None,
    /// In a hierarchy of its own (cgroup v1).
    V1,
    /// In the common one (cgroup v2).
    V2,
}

/// A port of the fabric.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PortSeen {
    /// State of the link.
    pub link: Link,
    /// Why it is not up.
    pub reason: Option<String>,
    /// It has a socket or device that still serves.
    pub attached: bool,
    /// A VMCI device's front end is connected, as far as the fabric has told.
    pub session: bool,
    /// A VMCI device has the socket by which programs of the host reach the guest.
    pub host_socket: bool,
}

/// A VM on this host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VmSeen {
    /// Its process, while there is one.
    pub process: Option<Process>,
    /// Why its last process ended or was not started. Cleared when the user asks for another start.
    pub failure: Option<String>,
    /// The socket between the front end of its VMCI device and the fabric is there.
    pub vmci_socket: bool,
    /// The socket between the host and its VMCI device is there.
    pub host_socket: bool,
}

/// A VM's process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Process number.
    pub pid: u32,
    /// Which program it is.
    pub kind: VmKind,
    /// Accelerator that it was started with.
    pub accelerator: String,
    /// It was asked to end.
    pub stopping: bool,
    /// Cards whose sockets are there to be connected.
    pub sockets: BTreeSet<usize>,
    /// It was started with a VMCI device.
    pub vmci: bool,
    /// Its memory was allocated and locked when it started.
    pub locked: bool,
    /// It was started so that an idle vCPU halts without leaving the guest.
    pub cpu_pm: bool,
    /// What else it was started with, or was told since.
    pub machine: MachineSeen,
}

/// What a VM's process was started with, or was told since.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MachineSeen {
    /// Where its memory is.
    pub memory: MemoryPlace,
    /// An idle vCPU halts without leaving the guest.
    pub cpu_pm: bool,
    /// The guest was told that its vCPUs have pCPUs of their own.
    pub hint_dedicated: bool,
    /// The guest may switch the host's halt polling off.
    pub poll_control: bool,
    /// Limits of its disk.
    pub disk_limits: DiskLimits,
}

/// What was done to the host for a namespace attachment.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct NetnsSeen {
    /// As it was attached.
    pub spec: NetnsSpec,
    /// The namespace was made for it.
    pub made_netns: bool,
}

/// What was done to the host for an external port.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ExternalSeen {
    /// As it was attached.
    pub spec: ExternalPortSpec,
}

impl Observed {
    /// Does the port have a socket or device that serves?
    pub fn attached(&self, port: PortId) -> bool {
        self.ports.get(&port).is_some_and(|seen| seen.attached)
    }

    /// Does the port wait for a socket or device?
    pub fn waits(&self, port: PortId) -> bool {
        self.ports.get(&port).is_some_and(|seen| !seen.attached)
    }
}
