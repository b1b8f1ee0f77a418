//! The state of the solver: which cores are free, and which of them suit a VM best.

use std::collections::{BTreeMap, BTreeSet};

use taut_api::Name;

use super::cores::{Core, Cores, Vm};
use super::problem::{BrokenPromise, Grant, Problem};

/// Owners of cores while VMs are placed.
#[derive(Debug)]
pub(super) struct FreeCores<'a> {
    cores: &'a Cores,
    /// Index of the VM that owns each core.
    owners: Vec<Option<usize>>,
    /// Cores that VMs may own and none does.
    pub(super) free: BTreeSet<usize>,
    /// Number of free cores by last-level cache.
    by_llc: BTreeMap<u32, usize>,
    /// Number of free cores by node.
    by_node: BTreeMap<u32, usize>,
    /// Number of free cores by their number of threads.
    by_threads: BTreeMap<usize, usize>,
    /// Threads of all cores that no VM owns.
    threads_left: usize,
    /// Number of cores that VMs may not own.
    pub(super) hosts: usize,
}

impl<'a> FreeCores<'a> {
    pub(super) fn new(cores: &'a Cores) -> Self {
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
            if core.ownable {
                state.give_back(index);
            } else {
                state.threads_left += core.threads.len();
                state.hosts += 1;
            }
        }
        state
    }

    pub(super) fn take(&mut self, core: usize, owner: usize) {
        self.owners[core] = Some(owner);
        self.free.remove(&core);
        self.count(core, |count| *count -= 1);
        self.threads_left -= self.cores.all[core].threads.len();
    }

    pub(super) fn give_back(&mut self, core: usize) {
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

    /// Number of free cores that the VM may own.
    pub(super) fn free_for(&self, vm: &Vm<'_>) -> usize {
        match vm.allowed {
            None => self.free.len(),
            Some(_) => self.free.iter().filter(|core| vm.may_own(&self.cores.all[**core])).count(),
        }
    }

    /// The core that each slot of the VM has already, where it may stay.
    pub(super) fn keep(&self, vm: &Vm<'_>) -> Vec<Option<usize>> {
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

    /// A core for each slot: those that the VM has, and the best of the free ones for the others;
    /// `None` when there are not enough.
    pub(super) fn complete(
        &self,
        problem: &Problem,
        vm: &Vm<'_>,
        has: &[Option<usize>],
    ) -> Option<Vec<usize>> {
        let wanted = has.iter().filter(|core| core.is_none()).count();
        if wanted == 0 {
            return Some(has.iter().flatten().copied().collect());
        }
        if wanted > self.free_for(vm) || self.promise_broken(problem, wanted).is_some() {
            return None;
        }
        let mut best_first = self.best_first(vm, has, wanted);
        let mut found = Vec::with_capacity(vm.slots.len());
        for (&width, has) in vm.slots.iter().zip(has) {
            if let Some(core) = has {
                found.push(*core);
                continue;
            }
            let best = best_first.iter().position(|core| self.cores.all[*core].threads.len() >= width)?;
            found.push(best_first.remove(best));
        }
        Some(found)
    }

    /// The reservations of other VMs that would not fit if `wanted` more cores were taken.
    pub(super) fn promise_broken(&self, problem: &Problem, wanted: usize) -> Option<BrokenPromise> {
        if problem.promised == 0 || wanted > self.free.len() {
            return None;
        }
        // The largest cores might be taken: reservations must fit whichever they are.
        let largest =
            self.by_threads.iter().rev().find(|(_, count)| **count > 0).map_or(1, |(threads, _)| *threads);
        let left = self.threads_left.saturating_sub(wanted * largest) as u64 * 1000;
        (left < problem.promised).then_some(BrokenPromise { promised: problem.promised, left })
    }

    /// Free cores that the VM may own, best first. Cores beside those that it has come first.
    /// For a VM without any, the smallest cache and then the smallest node with room for all of
    /// it come first, which leaves large ones to large VMs; then the node with most room.
    fn best_first(&self, vm: &Vm<'_>, has: &[Option<usize>], wanted: usize) -> Vec<usize> {
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

    /// Number of cores that each VM owns.
    pub(super) fn taken(&self, vms: &[Vm<'_>]) -> BTreeMap<Name, usize> {
        let mut counts = vec![0; vms.len()];
        self.owners.iter().flatten().for_each(|owner| counts[*owner] += 1);
        let has = vms.iter().zip(counts).filter(|(_, count)| *count > 0);
        has.map(|(vm, count)| (vm.name.clone(), count)).collect()
    }

    /// The threads of these cores, divided into those of vCPUs and idle ones.
    pub(super) fn grant(&self, slots: &[usize], found: &[usize]) -> Grant {
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
