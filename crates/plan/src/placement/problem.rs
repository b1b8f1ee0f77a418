//! The placement problem and its solution, as values.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use taut_api::Name;
use taut_api::host::Cpu;

/// VMs that are to own pCPUs, and the pCPUs of the host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Problem {
    /// Every on-line pCPU.
    pub cpus: Vec<Cpu>,
    /// pCPUs that threads of the fabric are bound to.
    pub fabric_cpus: BTreeSet<u32>,
    /// Thousandths of a pCPU that are reserved for VMs without exclusive pCPUs.
    pub promised: u64,
    /// VMs that are to have exclusive pCPUs.
    pub demands: BTreeMap<Name, Demand>,
    /// pCPUs that each VM owns now, in the order of its vCPUs.
    pub current: BTreeMap<Name, Vec<u32>>,
}

/// The pCPUs that a VM needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Demand {
    /// Number of vCPUs.
    pub vcpus: u32,
    /// Two consecutive vCPUs share one core where cores have two threads (`high-ht`).
    pub threads: bool,
    /// pCPUs that its vCPUs may own; `None` is any.
    pub allowed: Option<BTreeSet<u32>>,
}

/// The pCPUs that a VM owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The pCPU of each vCPU.
    pub cpus: Vec<u32>,
    /// Other threads of the same cores, kept idle.
    pub idle: Vec<u32>,
}

/// The reason why a VM owns no pCPUs, in numbers of cores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortage {
    /// Whole cores that the VM needs.
    pub cores: usize,
    /// Free cores that the VM may own.
    pub free: usize,
    /// Free cores outside of the VM's `[placement]`.
    pub elsewhere: usize,
    /// Cores that each other VM owns.
    pub taken: Arc<BTreeMap<Name, usize>>,
    /// Cores of the host: the first one, and those that the fabric's threads are bound to.
    pub host: usize,
    /// Set when enough cores are free, but the reservations of other VMs would not fit into the
    /// pCPUs that are left.
    pub promised: Option<BrokenPromise>,
}

/// Reservations of VMs without exclusive pCPUs that would not fit beside a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BrokenPromise {
    /// Thousandths of a pCPU that are reserved.
    pub promised: u64,
    /// Thousandths of a pCPU that would be left.
    pub left: u64,
}

/// The owners of the host's pCPUs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Placement {
    /// VMs that own pCPUs.
    pub granted: BTreeMap<Name, Grant>,
    /// VMs for which there were not enough, and why.
    pub short: BTreeMap<Name, Shortage>,
}

impl Placement {
    /// Every pCPU that is closed to others: those of vCPUs and their idle siblings.
    pub fn exclusive(&self) -> BTreeSet<u32> {
        self.granted.values().flat_map(|grant| grant.cpus.iter().chain(&grant.idle)).copied().collect()
    }

    /// Names of the VMs that own one of these pCPUs, separated by commas.
    pub(crate) fn owners_of(&self, cpus: &BTreeSet<u32>) -> String {
        let owns = |grant: &Grant| grant.cpus.iter().chain(&grant.idle).any(|cpu| cpus.contains(cpu));
        let owners = self.granted.iter().filter(|(_, grant)| owns(grant));
        owners.map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ")
    }
}
