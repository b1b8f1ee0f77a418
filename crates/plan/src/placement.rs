//! Which pCPU each vCPU of a latency-sensitive VM owns (SPEC LS-3, LS-4).
//!
//! Pure, deterministic and stable: what a VM has it keeps as long as it is still right; nobody moves for a newcomer. The lowest
//! pCPU, with the rest of its core, always stays for the host: unmovable interrupts and the kernel's own time-keeping live there.
//! Exclusive pCPUs are given by whole cores, so that an SMT sibling is either idle or the same VM's.

use std::collections::{BTreeMap, BTreeSet};

use taut_api::Name;
use taut_api::host::Cpu;

/// What is placed, on what.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Problem {
    /// Every on-line pCPU.
    pub cpus: Vec<Cpu>,
    /// pCPUs that something else is bound to (workers of the fabric).
    pub bound: BTreeSet<u32>,
    /// Thousandths of a pCPU that are promised to VMs without exclusive pCPUs.
    pub promised: u64,
    /// VMs that are to have exclusive pCPUs.
    pub demands: BTreeMap<Name, Demand>,
    /// What each VM has, in the order of its vCPUs.
    pub current: BTreeMap<Name, Vec<u32>>,
}

/// What a VM needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demand {
    /// Its vCPUs.
    pub vcpus: u32,
    /// Two consecutive vCPUs share one core where cores have two threads (`high-ht`).
    pub threads: bool,
}

/// What a VM got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The pCPU of each vCPU.
    pub cpus: Vec<u32>,
    /// Other threads of the same cores, kept idle.
    pub idle: Vec<u32>,
}

/// Why a VM got nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortage {
    /// Whole cores that it needs.
    pub cores: usize,
    /// Cores that are free.
    pub free: usize,
    /// Cores that others own, with whom.
    pub taken: BTreeMap<Name, usize>,
    /// Cores that are the host's: the first one, and those that the fabric's workers are bound to.
    pub host: usize,
    /// Enough cores are free, but without them these thousandths of a pCPU, promised to other VMs, would not fit into what is
    /// left: promised and left.
    pub promised: Option<(u64, u64)>,
}

/// The outcome.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Placement {
    /// Who got what.
    pub granted: BTreeMap<Name, Grant>,
    /// Who got nothing, and why.
    pub short: BTreeMap<Name, Shortage>,
}

impl Placement {
    /// Every pCPU that nobody else may use: vCPUs' and idle siblings.
    pub fn exclusive(&self) -> BTreeSet<u32> {
        self.granted.values().flat_map(|grant| grant.cpus.iter().chain(&grant.idle)).copied().collect()
    }
}

/// Places everybody who fits.
pub fn place(problem: &Problem) -> Placement {
    let cores = Cores::of(problem);
    let mut current = problem.current.clone();
    // Who finds no place gives back what it had, and that may be what another one lacked: until nothing changes. Each round
    // grants at least what the last one did.
    loop {
        let placement = round(problem, &cores, &current);
        let next: BTreeMap<_, _> =
            placement.granted.iter().map(|(name, grant)| (name.clone(), grant.cpus.clone())).collect();
        if next == current {
            return placement;
        }
        current = next;
    }
}

/// One core.
#[derive(Debug)]
struct Core {
    /// Its threads, ascending.
    threads: Vec<u32>,
    node: u32,
    llc: u32,
    /// May VMs own it?
    free: bool,
}

#[derive(Debug)]
struct Cores {
    all: Vec<Core>,
    of_cpu: BTreeMap<u32, usize>,
    /// Threads of a core that consecutive vCPUs may share: 2 with SMT, else 1.
    width: usize,
}

impl Cores {
    fn of(problem: &Problem) -> Self {
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
                let hosts = |cpu: &u32| Some(*cpu) == lowest || problem.bound.contains(cpu);
                let free = !threads.iter().any(hosts);
                Core { threads, node: cpus[0].node, llc: cpus[0].llc, free }
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

    /// How many vCPUs go on each core that the VM needs.
    fn slots(&self, demand: Demand) -> Vec<usize> {
        let width = if demand.threads { self.width } else { 1 };
        let vcpus = demand.vcpus as usize;
        (0..vcpus.div_ceil(width)).map(|slot| width.min(vcpus - slot * width)).collect()
    }
}

/// Who has which core.
type Owners<'a> = BTreeMap<usize, &'a Name>;

fn round(problem: &Problem, cores: &Cores, current: &BTreeMap<Name, Vec<u32>>) -> Placement {
    let mut owners = Owners::new();
    let mut kept: BTreeMap<&Name, Vec<Option<usize>>> = BTreeMap::new();
    // Whoever has all that it needs keeps it; then what is left of others.
    for whole in [true, false] {
        for (name, &demand) in &problem.demands {
            if kept.contains_key(name) {
                continue;
            }
            let slots = cores.slots(demand);
            let found = keep(cores, &slots, current.get(name), &owners);
            if whole && !found.iter().all(Option::is_some) {
                continue;
            }
            owners.extend(found.iter().flatten().map(|&core| (core, name)));
            kept.insert(name, found);
        }
    }
    let mut placement = Placement::default();
    for (name, &demand) in &problem.demands {
        let slots = cores.slots(demand);
        let has = &kept[name];
        let missing = has.iter().any(Option::is_none);
        match complete(problem, cores, &slots, has, &owners) {
            Ok(found) => {
                owners.extend(found.iter().map(|&core| (core, name)));
                placement.granted.insert(name.clone(), grant(cores, &slots, &found));
            }
            Err(shortage) => {
                debug_assert!(missing);
                owners.retain(|_, owner| *owner != name);
                placement.short.insert(name.clone(), shortage);
            }
        }
    }
    placement
}

/// The core that each slot has already, where it may stay.
fn keep(
    cores: &Cores,
    slots: &[usize],
    current: Option<&Vec<u32>>,
    owners: &Owners<'_>,
) -> Vec<Option<usize>> {
    let mut vcpu = 0;
    let mut mine = BTreeSet::new();
    let of_slot = |&width: &usize| {
        let first = current.and_then(|cpus| cpus.get(vcpu));
        vcpu += width;
        let core = *cores.of_cpu.get(first?)?;
        let usable = cores.all[core].free && cores.all[core].threads.len() >= width;
        (usable && !owners.contains_key(&core) && mine.insert(core)).then_some(core)
    };
    slots.iter().map(of_slot).collect()
}

/// A core for each slot: those that it has, and the best of the free ones.
fn complete(
    problem: &Problem,
    cores: &Cores,
    slots: &[usize],
    has: &[Option<usize>],
    owners: &Owners<'_>,
) -> Result<Vec<usize>, Shortage> {
    let free: BTreeSet<usize> =
        (0..cores.all.len()).filter(|core| cores.all[*core].free && !owners.contains_key(core)).collect();
    let shortage = |promised| {
        let mut taken: BTreeMap<Name, usize> = BTreeMap::new();
        for owner in owners.values() {
            *taken.entry((*owner).clone()).or_default() += 1;
        }
        let host = cores.all.iter().filter(|core| !core.free).count();
        let free = cores.all.len() - host - owners.len();
        Shortage { cores: slots.len(), free, taken, host, promised }
    };
    let wanted = has.iter().filter(|core| core.is_none()).count();
    if wanted > free.len() {
        return Err(shortage(None));
    }
    if wanted > 0 && problem.promised > 0 {
        let after = owners.keys().copied().collect::<BTreeSet<_>>();
        let threads_left: usize = cores
            .all
            .iter()
            .enumerate()
            .filter(|(index, _)| !after.contains(index))
            .map(|(_, core)| core.threads.len())
            .sum();
        // The largest cores might be taken: what is promised must fit whichever they are.
        let largest = free.iter().map(|core| cores.all[*core].threads.len()).max().unwrap_or(1);
        let left = threads_left.saturating_sub(wanted * largest) as u64 * 1000;
        if left < problem.promised {
            return Err(shortage(Some((problem.promised, left))));
        }
    }
    let mut near = near(cores, has, &free, wanted);
    let mut found = Vec::with_capacity(slots.len());
    for (&width, has) in slots.iter().zip(has) {
        if let Some(core) = has {
            found.push(*core);
            continue;
        }
        let fits = |core: &usize| cores.all[*core].threads.len() >= width;
        let best = near.iter().position(fits).ok_or_else(|| shortage(None))?;
        found.push(near.remove(best));
    }
    Ok(found)
}

/// Free cores in the order in which they suit: beside what the VM has; else the smallest cache, then the smallest node, that
/// takes all of it (large ones are left for large VMs); else the node with most room first.
fn near(cores: &Cores, has: &[Option<usize>], free: &BTreeSet<usize>, wanted: usize) -> Vec<usize> {
    let mut by_llc: BTreeMap<u32, usize> = BTreeMap::new();
    let mut by_node: BTreeMap<u32, usize> = BTreeMap::new();
    for &core in free {
        *by_llc.entry(cores.all[core].llc).or_default() += 1;
        *by_node.entry(cores.all[core].node).or_default() += 1;
    }
    let anchor = has.iter().flatten().next().map(|&core| &cores.all[core]);
    let smallest = |room: &BTreeMap<u32, usize>| {
        let enough = room.iter().filter(|(_, count)| **count >= wanted);
        enough.min_by_key(|(id, count)| (**count, **id)).map(|(id, _)| *id)
    };
    let best_llc = anchor.map(|core| core.llc).or_else(|| smallest(&by_llc));
    let best_node = anchor.map(|core| core.node).or_else(|| smallest(&by_node));
    let mut order: Vec<usize> = free.iter().copied().collect();
    order.sort_by_key(|&index| {
        let core = &cores.all[index];
        (
            best_llc != Some(core.llc),
            best_node != Some(core.node),
            usize::MAX - by_node[&core.node],
            core.node,
            usize::MAX - by_llc[&core.llc],
            core.llc,
            index,
        )
    });
    order
}

fn grant(cores: &Cores, slots: &[usize], found: &[usize]) -> Grant {
    let mut grant = Grant { cpus: Vec::new(), idle: Vec::new() };
    for (&width, &core) in slots.iter().zip(found) {
        let (used, idle) = cores.all[core].threads.split_at(width);
        grant.cpus.extend(used);
        grant.idle.extend(idle);
    }
    grant.idle.sort_unstable();
    grant
}

#[cfg(test)]
mod tests;
