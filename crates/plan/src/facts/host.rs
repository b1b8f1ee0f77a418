//! Resources of the host.

use std::collections::{BTreeMap, BTreeSet};

use taut_api::Bytes;
use taut_api::enforcement::Controllers;
use taut_api::host::Cpu;
use taut_api::placement::PlacementSpec;

/// Resources of the host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostSeen {
    /// Memory of the host.
    pub memory_total: Bytes,
    /// Size of the host's swap.
    pub swap_total: Bytes,
    /// NUMA nodes without memory.
    pub bare_nodes: BTreeSet<u32>,
    /// Free huge pages of 2 MiB on each NUMA node.
    pub huge_pages: BTreeMap<u32, Bytes>,
    /// Control-group controllers that can enforce shares and limits.
    pub controllers: Controllers,
    /// Every on-line pCPU.
    pub cpus: Vec<Cpu>,
    /// Nominal frequency of a pCPU in MHz; 0 when the host does not state one.
    pub cpu_mhz: u32,
    /// The QEMU and the accelerator for guests on this host are known.
    pub probed: bool,
}

impl HostSeen {
    /// NUMA nodes that have a pCPU.
    pub fn nodes(&self) -> BTreeSet<u32> {
        self.cpus.iter().map(|cpu| cpu.node).collect()
    }

    /// NUMA nodes of these pCPUs.
    pub fn nodes_of(&self, cpus: &[u32]) -> BTreeSet<u32> {
        self.cpus.iter().filter(|cpu| cpus.contains(&cpu.id)).map(|cpu| cpu.node).collect()
    }

    /// On-line pCPUs that a VM's `[placement]` allows; `None` is any.
    pub fn allowed_pcpus(&self, placement: &PlacementSpec) -> Option<BTreeSet<u32>> {
        let PlacementSpec { nodes, cpus, .. } = placement;
        if nodes.is_any() && cpus.is_any() {
            return None;
        }
        let allowed = self.cpus.iter().filter(|cpu| nodes.allows(cpu.node) && cpus.allows(cpu.id));
        Some(allowed.map(|cpu| cpu.id).collect())
    }

    /// Returns whether a core has several on-line threads.
    pub fn has_smt(&self) -> bool {
        let cores: BTreeSet<_> = self.cpus.iter().map(|cpu| (cpu.package, cpu.core)).collect();
        cores.len() < self.cpus.len()
    }
}
