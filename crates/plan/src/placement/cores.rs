//! The cores of the host, and the cores that one VM needs.

use std::collections::{BTreeMap, BTreeSet};

use taut_api::Name;
use taut_api::host::Cpu;

use super::problem::{Demand, Problem};

/// One core.
#[derive(Debug)]
pub(super) struct Core {
    /// Its threads, ascending.
    pub(super) threads: Vec<u32>,
    /// NUMA node.
    pub(super) node: u32,
    /// Last-level cache.
    pub(super) llc: u32,
    /// VMs may own this core: it is neither the host's first one nor used by the fabric's threads.
    pub(super) ownable: bool,
}

/// All cores of the host.
#[derive(Debug)]
pub(super) struct Cores {
    /// The cores, by their first thread.
    pub(super) all: Vec<Core>,
    /// Index of the core of each pCPU.
    pub(super) of_cpu: BTreeMap<u32, usize>,
    /// Threads of a core that consecutive vCPUs may share: 2 with SMT, else 1.
    pub(super) width: usize,
}

impl Cores {
    pub(super) fn of(problem: &Problem) -> Self {
        let mut groups: BTreeMap<(u32, u32), Vec<&Cpu>> = BTreeMap::new();
        for cpu in &problem.cpus {
            groups.entry((cpu.package, cpu.core)).or_default().push(cpu);
        }
        let lowest = problem.cpus.iter().map(|cpu| cpu.id).min();
        let mut cores: Vec<Core> = groups
            .into_values()
            .map(|cpus| {
                let mut threads: Vec<u32> = cpus.iter().map(|cpu| cpu.id).collect();
                threads.sort_unstable();
                let is_hosts = |cpu: &u32| Some(*cpu) == lowest || problem.fabric_cpus.contains(cpu);
                let ownable = !threads.iter().any(is_hosts);
                Core { threads, node: cpus[0].node, llc: cpus[0].llc, ownable }
            })
            .collect();
        cores.sort_by_key(|core| core.threads[0]);
        let of_cpu = cores
            .iter()
            .enumerate()
            .flat_map(|(index, core)| core.threads.iter().map(move |&cpu| (cpu, index)))
            .collect();
        let width = cores.iter().map(|core| core.threads.len()).max().unwrap_or(1).min(2);
        Self { all: cores, of_cpu, width }
    }

    /// Number of vCPUs on each core that the VM needs.
    pub(super) fn slots(&self, demand: &Demand) -> Vec<usize> {
        let width = if demand.threads { self.width } else { 1 };
        let vcpus = demand.vcpus as usize;
        (0..vcpus.div_ceil(width)).map(|slot| width.min(vcpus - slot * width)).collect()
    }
}

/// One VM that is to own pCPUs.
#[derive(Debug)]
pub(super) struct Vm<'a> {
    pub(super) name: &'a Name,
    /// Number of vCPUs on each core that it needs.
    pub(super) slots: Vec<usize>,
    /// pCPUs that it may own; `None` is any.
    pub(super) allowed: Option<&'a BTreeSet<u32>>,
    /// pCPUs that it owns now, in the order of its vCPUs.
    pub(super) current: Option<Vec<u32>>,
}

impl Vm<'_> {
    /// Returns whether its vCPUs may own as many of the core's first threads as they use of one.
    pub(super) fn may_own(&self, core: &Core) -> bool {
        let width = self.slots.first().copied().unwrap_or(0);
        self.allowed.is_none_or(|allowed| core.threads.iter().take(width).all(|cpu| allowed.contains(cpu)))
    }
}
