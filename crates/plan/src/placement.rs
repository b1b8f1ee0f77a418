//! Which pCPU each vCPU of a latency-sensitive VM owns (SPEC LS-3, LS-4).
//!
//! Pure, deterministic and stable: what a VM has it keeps as long as it is still right; nobody moves for a newcomer. The lowest
//! pCPU, with the rest of its core, always stays for the host: unmovable interrupts and the kernel's own time-keeping live there.
//! Exclusive pCPUs are given by whole cores, so that an SMT sibling is either idle or the same VM's.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Demand {
    /// Its vCPUs.
    pub vcpus: u32,
    /// Two consecutive vCPUs share one core where cores have two threads (`high-ht`).
    pub threads: bool,
    /// pCPUs that its vCPUs may own, if not any.
    pub allowed: Option<BTreeSet<u32>>,
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
    /// Cores that are free, and outside of what it may have.
    pub elsewhere: usize,
    /// Cores that others own, with whom.
    pub taken: Arc<BTreeMap<Name, usize>>,
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
    let vms: Vec<Vm<'_>> = problem
        .demands
        .iter()
        .map(|(name, demand)| Vm {
            name,
            slots: cores.slots(demand),
            allowed: demand.allowed.as_ref(),
            current: problem.current.get(name).cloned(),
        })
        .collect();
    solve(problem, &cores, vms)
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
    fn slots(&self, demand: &Demand) -> Vec<usize> {
        let width = if demand.threads { self.width } else { 1 };
        let vcpus = demand.vcpus as usize;
        (0..vcpus.div_ceil(width)).map(|slot| width.min(vcpus - slot * width)).collect()
    }
}

/// One that is to be placed.
#[derive(Debug)]
struct Vm<'a> {
    name: &'a Name,
    /// vCPUs on each core that it needs.
    slots: Vec<usize>,
    /// pCPUs that it may have.
    allowed: Option<&'a BTreeSet<u32>>,
    /// What it has.
    current: Option<Vec<u32>>,
}

impl Vm<'_> {
    /// May its vCPUs own the core's first threads, as many as it uses of one?
    fn may_own(&self, core: &Core) -> bool {
        let width = self.slots.first().copied().unwrap_or(0);
        self.allowed.is_none_or(|allowed| core.threads.iter().take(width).all(|cpu| allowed.contains(cpu)))
    }
}

fn solve(problem: &Problem, cores: &Cores, mut vms: Vec<Vm<'_>>) -> Placement {
    loop {
        let mut state = State::new(cores);
        let found = round(problem, &mut state, &vms);
        // Who finds no place gives back what it had, and that may be what another one lacked: until nothing changes. Each round
        // grants at least what the last one did.
        let (mut again, mut new, mut short) = (false, false, false);
        for (vm, (cores, kept)) in vms.iter_mut().zip(&found) {
            again |= cores.is_none() && *kept;
            short |= cores.is_none();
            let next = cores.as_ref().map(|cores| state.grant(&vm.slots, cores).cpus);
            new |= next != vm.current;
            vm.current = next;
        }
        // What is promised is counted with the largest cores that are free: fewer of them may leave room for one more.
        if again || (new && short && problem.promised > 0) {
            continue;
        }
        let mut placement = Placement::default();
        let taken = Arc::new(state.taken(&vms));
        for (vm, (cores, _)) in vms.iter().zip(&found) {
            if let Some(cores) = cores {
                placement.granted.insert(vm.name.clone(), state.grant(&vm.slots, cores));
            } else {
                // By what is free now that everybody has been asked.
                let promised = state.promise_broken(problem, vm.slots.len());
                let free = state.free_for(vm);
                let elsewhere = state.free.len() - free;
                let (taken, host) = (taken.clone(), state.hosts);
                let shortage = Shortage { cores: vm.slots.len(), free, elsewhere, taken, host, promised };
                placement.short.insert(vm.name.clone(), shortage);
            }
        }
        return placement;
    }
}

/// The cores that each VM gets, and whether it had some of them.
fn round(problem: &Problem, state: &mut State<'_>, vms: &[Vm<'_>]) -> Vec<(Option<Vec<usize>>, bool)> {
    let mut kept: Vec<Option<Vec<Option<usize>>>> = vec![None; vms.len()];
    // Whoever has all that it needs keeps it; then what is left of others.
    for whole in [true, false] {
        for (index, vm) in vms.iter().enumerate().filter(|(_, vm)| !whole || vm.current.is_some()) {
            if kept[index].is_some() {
                continue;
            }
            let found = state.keep(vm);
            if whole && !found.iter().all(Option::is_some) {
                continue;
            }
            for core in found.iter().flatten() {
                state.take(*core, index);
            }
            kept[index] = Some(found);
        }
    }
    let mut outcome = Vec::with_capacity(vms.len());
    for (index, (vm, has)) in vms.iter().zip(kept).enumerate() {
        let has = has.unwrap_or_default();
        let had = has.iter().any(Option::is_some);
        let found = state.complete(problem, vm, &has);
        match &found {
            Some(found) => {
                for core in found.iter().filter(|core| !has.contains(&Some(**core))) {
                    state.take(*core, index);
                }
            }
            None => {
                for core in has.iter().flatten() {
                    state.give_back(*core);
                }
            }
        }
        outcome.push((found, had));
    }
    outcome
}

/// Who has which core, while VMs are placed.
struct State<'a> {
    cores: &'a Cores,
    /// Which VM has each core.
    owners: Vec<Option<usize>>,
    /// Cores that nobody has and VMs may own.
    free: BTreeSet<usize>,
    /// How many of them are on each cache and node.
    by_llc: BTreeMap<u32, usize>,
    by_node: BTreeMap<u32, usize>,
    /// How many of them have how many threads.
    by_threads: BTreeMap<usize, usize>,
    /// Threads of all cores that no VM has.
    threads_left: usize,
    /// Cores that VMs may not own.
    hosts: usize,
}

impl<'a> State<'a> {
    fn new(cores: &'a Cores) -> Self {
        let mut state = Self {
            cores,
            owners: vec![None; cores.all.len()],
            free: BTreeSet::new(),
            by_llc: BTreeMap::new(),
            by_node: BTreeMap::new(),
            by_threads: BTreeMap::new(),
            threads_left: 0,
            hosts: 0,
        };
        for (index, core) in cores.all.iter().enumerate() {
            if core.free {
                state.give_back(index);
            } else {
                state.threads_left += core.threads.len();
                state.hosts += 1;
            }
        }
        state
    }

    fn take(&mut self, core: usize, owner: usize) {
        self.owners[core] = Some(owner);
        self.free.remove(&core);
        self.count(core, |count| *count -= 1);
        self.threads_left -= self.cores.all[core].threads.len();
    }

    fn give_back(&mut self, core: usize) {
        self.owners[core] = None;
        self.free.insert(core);
        self.count(core, |count| *count += 1);
        self.threads_left += self.cores.all[core].threads.len();
    }

    fn count(&mut self, core: usize, change: impl Fn(&mut usize)) {
        let Core { llc, node, threads, .. } = &self.cores.all[core];
        change(self.by_llc.entry(*llc).or_default());
        change(self.by_node.entry(*node).or_default());
        change(self.by_threads.entry(threads.len()).or_default());
    }

    /// How many cores are free that it may have.
    fn free_for(&self, vm: &Vm<'_>) -> usize {
        match vm.allowed {
            None => self.free.len(),
            Some(_) => self.free.iter().filter(|core| vm.may_own(&self.cores.all[**core])).count(),
        }
    }

    /// The core that each slot has already, where it may stay.
    fn keep(&self, vm: &Vm<'_>) -> Vec<Option<usize>> {
        let Some(current) = &vm.current else { return vec![None; vm.slots.len()] };
        let mut vcpu = 0;
        let mut mine = BTreeSet::new();
        let of_slot = |&width: &usize| {
            let first = current.get(vcpu);
            vcpu += width;
            let core = *self.cores.of_cpu.get(first?)?;
            let threads = self.cores.all[core].threads.len();
            let usable = self.free.contains(&core) && threads >= width && vm.may_own(&self.cores.all[core]);
            (usable && mine.insert(core)).then_some(core)
        };
        vm.slots.iter().map(of_slot).collect()
    }

    /// A core for each slot: those that it has, and the best of the free ones; nothing when there are not enough.
    fn complete(&self, problem: &Problem, vm: &Vm<'_>, has: &[Option<usize>]) -> Option<Vec<usize>> {
        let wanted = has.iter().filter(|core| core.is_none()).count();
        if wanted == 0 {
            return Some(has.iter().flatten().copied().collect());
        }
        if wanted > self.free_for(vm) || self.promise_broken(problem, wanted).is_some() {
            return None;
        }
        let mut near = self.near(vm, has, wanted);
        let mut found = Vec::with_capacity(vm.slots.len());
        for (&width, has) in vm.slots.iter().zip(has) {
            if let Some(core) = has {
                found.push(*core);
                continue;
            }
            let best = near.iter().position(|core| self.cores.all[*core].threads.len() >= width)?;
            found.push(near.remove(best));
        }
        Some(found)
    }

    /// If so many more cores are taken, what is promised and what is left, where that is not enough.
    fn promise_broken(&self, problem: &Problem, wanted: usize) -> Option<(u64, u64)> {
        if problem.promised == 0 || wanted > self.free.len() {
            return None;
        }
        // The largest cores might be taken: what is promised must fit whichever they are.
        let largest =
            self.by_threads.iter().rev().find(|(_, count)| **count > 0).map_or(1, |(threads, _)| *threads);
        let left = self.threads_left.saturating_sub(wanted * largest) as u64 * 1000;
        (left < problem.promised).then_some((problem.promised, left))
    }

    /// Free cores in the order in which they suit: beside what the VM has; else the smallest cache, then the smallest node, that
    /// takes all of it (large ones are left for large VMs); else the node with most room first.
    fn near(&self, vm: &Vm<'_>, has: &[Option<usize>], wanted: usize) -> Vec<usize> {
        let anchor = has.iter().flatten().next().map(|&core| &self.cores.all[core]);
        let smallest = |room: &BTreeMap<u32, usize>| {
            let enough = room.iter().filter(|(_, count)| **count >= wanted);
            enough.min_by_key(|(id, count)| (**count, **id)).map(|(id, _)| *id)
        };
        let best_llc = anchor.map(|core| core.llc).or_else(|| smallest(&self.by_llc));
        let best_node = anchor.map(|core| core.node).or_else(|| smallest(&self.by_node));
        let mut order: Vec<usize> =
            self.free.iter().copied().filter(|core| vm.may_own(&self.cores.all[*core])).collect();
        order.sort_by_cached_key(|&index| {
            let core = &self.cores.all[index];
            (
                best_llc != Some(core.llc),
                best_node != Some(core.node),
                usize::MAX - self.by_node[&core.node],
                core.node,
                usize::MAX - self.by_llc[&core.llc],
                core.llc,
                index,
            )
        });
        order
    }

    /// How many cores each VM has.
    fn taken(&self, vms: &[Vm<'_>]) -> BTreeMap<Name, usize> {
        let mut counts = vec![0; vms.len()];
        self.owners.iter().flatten().for_each(|owner| counts[*owner] += 1);
        let has = vms.iter().zip(counts).filter(|(_, count)| *count > 0);
        has.map(|(vm, count)| (vm.name.clone(), count)).collect()
    }

    fn grant(&self, slots: &[usize], found: &[usize]) -> Grant {
        let mut grant = Grant { cpus: Vec::new(), idle: Vec::new() };
        for (&width, &core) in slots.iter().zip(found) {
            let (used, idle) = self.cores.all[core].threads.split_at(width);
            grant.cpus.extend(used);
            grant.idle.extend(idle);
        }
        grant.idle.sort_unstable();
        grant
    }
}

#[cfg(test)]
mod tests;
