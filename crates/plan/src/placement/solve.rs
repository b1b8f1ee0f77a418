//! Solves the placement problem: a pCPU for each vCPU of each latency-sensitive VM (LS-3, LS-4).
//!
//! The solution is deterministic and stable. A VM keeps the pCPUs that it owns as long as they are
//! still right for it, and no VM moves for a newcomer. The core of the lowest pCPU always stays
//! with the host, because unmovable interrupts and the kernel's time-keeping run there. VMs own
//! whole cores, so an SMT sibling of an exclusive pCPU is either idle or owned by the same VM.

use std::sync::Arc;

use super::cores::{Cores, Vm};
use super::free_cores::FreeCores;
use super::problem::{Placement, Problem, Shortage};

/// Places every VM that fits.
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
    repeat_rounds(problem, &cores, vms)
}

/// Runs rounds until the outcome does not change. A VM that finds no place gives its cores back,
/// and these may be what another VM lacked. Each round grants at least what the last one did.
fn repeat_rounds(problem: &Problem, cores: &Cores, mut vms: Vec<Vm<'_>>) -> Placement {
    loop {
        let mut state = FreeCores::new(cores);
        let found = place_once(problem, &mut state, &vms);
        let (mut again, mut new, mut short) = (false, false, false);
        for (vm, (cores, kept)) in vms.iter_mut().zip(&found) {
            again |= cores.is_none() && *kept;
            short |= cores.is_none();
            let next = cores.as_ref().map(|cores| state.grant(&vm.slots, cores).cpus);
            new |= next != vm.current;
            vm.current = next;
        }
        // Reservations are checked against the largest free cores. With fewer of them free, there
        // may be room for one more VM.
        if again || (new && short && problem.promised > 0) {
            continue;
        }
        let mut placement = Placement::default();
        let taken = Arc::new(state.taken(&vms));
        for (vm, (cores, _)) in vms.iter().zip(&found) {
            if let Some(cores) = cores {
                placement.granted.insert(vm.name.clone(), state.grant(&vm.slots, cores));
            } else {
                // The numbers are those after all VMs were placed.
                let free = state.free_for(vm);
                let shortage = Shortage {
                    cores: vm.slots.len(),
                    free,
                    elsewhere: state.free.len() - free,
                    taken: taken.clone(),
                    host: state.hosts,
                    promised: state.promise_broken(problem, vm.slots.len()),
                };
                placement.short.insert(vm.name.clone(), shortage);
            }
        }
        return placement;
    }
}

/// Returns the cores that each VM gets, if any, and whether it had some of them before.
fn place_once(
    problem: &Problem,
    state: &mut FreeCores<'_>,
    vms: &[Vm<'_>],
) -> Vec<(Option<Vec<usize>>, bool)> {
    let mut kept: Vec<Option<Vec<Option<usize>>>> = vec![None; vms.len()];
    // VMs that have all cores they need keep them first; then the others keep what they have.
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

#[cfg(test)]
mod tests;
