//! A VM on this host: its process, how that was started, and what it was told since.

use std::collections::{BTreeMap, BTreeSet};

use taut_api::confinement::Confinement;
use taut_api::enforcement::ProcessLimits;
use taut_api::fabric::config::QueuePairMemory;
use taut_api::machine::{DiskLimits, VmAccelerator};
use taut_api::vm::{VmKind, VmSpec};
use taut_api::vmci::VmciSpec;
use taut_api::{Bytes, MacAddr, Mtu};

/// A VM that has a process, or had one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VmSeen {
    /// Its process, while there is one.
    pub process: Option<Process>,
    /// Why its last process ended or was not started. Cleared by the user's next start.
    pub failure: Option<String>,
    /// The socket between its VMCI device's front end and the fabric exists.
    pub vmci_socket: bool,
    /// The socket between programs of the host and its VMCI device exists.
    pub host_socket: bool,
}

/// A VM's process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Process {
    /// Process number.
    pub pid: u32,
    /// The program: QEMU or a microguest.
    pub kind: VmKind,
    /// Accelerator that it was started with.
    pub accelerator: VmAccelerator,
    /// The process was asked to end.
    pub stopping: bool,
    /// The process has finished starting: QEMU's monitor answers. A microguest is ready at once.
    pub ready: bool,
    /// Indices of the vNICs whose sockets exist and can be connected.
    pub sockets: BTreeSet<usize>,
    /// The process was started with a VMCI device.
    pub vmci: bool,
    /// Memory for queue pairs that it has.
    pub queue_pairs: Option<QueuePairMemory>,
    /// Most memory for queue pairs that can be added while it has none; 0 without room.
    pub queue_pairs_room: Bytes,
    /// Adding memory for queue pairs has begun and not ended.
    pub adds_queue_pairs: bool,
    /// Its memory was allocated and locked when it started.
    pub locked: bool,
    /// Its limits, as recorded; absent if an earlier version started it.
    pub limits: Option<ProcessLimits>,
    /// Other settings of the virtual machine.
    pub machine: MachineSeen,
    /// Walls between it and the host.
    pub confinement: Option<Confinement>,
}

/// Settings of the virtual machine of a running process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MachineSeen {
    /// The place that its memory got when it started.
    pub memory: MemoryPlace,
    /// An idle vCPU halts without leaving the guest (QEMU's `cpu-pm`).
    pub cpu_pm: bool,
    /// The guest was told that each vCPU has a pCPU of its own (`kvm-hint-dedicated`).
    pub hint_dedicated: bool,
    /// The guest may switch the host's halt polling off (`kvm-poll-control`).
    pub poll_control: bool,
    /// Limits of its disk.
    pub disk_limits: DiskLimits,
    /// vCPUs and memory; absent if they are not known.
    pub size: Option<MachineSize>,
    /// Indices of the cards whose link QEMU has taken down.
    pub links_down: BTreeSet<usize>,
    /// Address that the guest's driver has set for each card, where QEMU tells it.
    pub addresses: Vec<Option<SetAddress>>,
    /// MTU that the guest was told for each card by its index, at its start. Emulated cards cannot
    /// tell it.
    pub mtus: BTreeMap<usize, Mtu>,
}

/// Address that a guest's driver has set for a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetAddress {
    /// The address.
    pub mac: MacAddr,
    /// Place in the order in which the drivers of all VMs have set their addresses.
    pub order: u64,
}

/// Number of vCPUs and size of the memory of a VM.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct MachineSize {
    /// Number of vCPUs.
    pub vcpus: u32,
    /// Size of the guest's memory.
    pub memory: Bytes,
    /// Size of the memory for queue pairs, beside the guest's memory; 0 without any.
    #[serde(default)]
    pub queue_pairs: Bytes,
}

impl MachineSize {
    /// The size that a description asks for.
    pub fn of(spec: &VmSpec) -> Self {
        Self { vcpus: spec.vcpus, memory: spec.memory, queue_pairs: spec.queue_pairs() }
    }

    /// The larger number of vCPUs and the larger memory of two sizes.
    #[must_use]
    pub fn larger(self, other: Self) -> Self {
        Self {
            vcpus: self.vcpus.max(other.vcpus),
            memory: self.memory.max(other.memory),
            queue_pairs: self.queue_pairs.max(other.queue_pairs),
        }
    }

    /// Returns the memory of the machine's NVDIMM, which has the queue pairs.
    pub const fn nvdimm(&self) -> Bytes {
        VmciSpec::nvdimm_of(self.queue_pairs)
    }

    /// Returns all memory that the guest sees.
    pub const fn all_memory(&self) -> Bytes {
        Bytes(self.memory.0.saturating_add(self.nvdimm().0))
    }
}

/// The present or future place of a VM's memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemoryPlace {
    /// NUMA nodes of the host from which the memory of each virtual NUMA node comes as long as they
    /// have room. An empty set means any node. One entry means that the guest sees no NUMA nodes.
    pub nodes: Vec<BTreeSet<u32>>,
    /// The memory is on huge pages of 2 MiB.
    pub huge: bool,
}
