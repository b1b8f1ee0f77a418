//! The wanted state of the host: the share of each VM that has a process.

use taut_api::Name;
use taut_api::enforcement::{CpuShare, HostPlan, VmShare};
use taut_api::fabric::config::WorkerMode;

use super::Decided;
use super::halt::poll_for_halted_vcpus;
use super::migration::move_memory_to_vcpus;
use super::passthrough::place_interrupts;
use crate::facts::{Desired, Observed, Process};

/// States what every VM that has a process gets. A VM that is no longer wanted gets nothing beyond
/// its entry.
pub fn share_host(desired: &Desired, observed: &Observed, decided: &Decided) -> HostPlan {
    let moves = move_memory_to_vcpus(desired, observed, &decided.placement);
    let share = |name: &Name, process: &Process| VmShare {
        pid: process.pid,
        cpus: share_pcpus(decided, name),
        group: decided.groups.get(name).cloned(),
        memory: moves.get(name).cloned().unwrap_or_default(),
        priority: decided.placement.granted.contains_key(name),
        interrupts: place_interrupts(desired, &observed.host, &decided.placement, name),
    };
    let running = observed.vms.iter().filter_map(|(name, seen)| Some((name, seen.process.as_ref()?)));
    let vms: std::collections::BTreeMap<_, _> =
        running.map(|(name, process)| (name.clone(), share(name, process))).collect();
    // A worker that polls with real-time priority would leave nothing to other threads.
    let sleeps = desired.workers.mode != WorkerMode::Polling;
    let fabric = observed.fabric.pid.filter(|_| sleeps && vms.values().any(|vm| vm.priority));
    HostPlan { vms, fabric, poll_ns: poll_for_halted_vcpus(desired, observed) }
}

fn share_pcpus(decided: &Decided, name: &Name) -> CpuShare {
    if let Some(grant) = decided.placement.granted.get(name) {
        return CpuShare::Exclusive { cpus: grant.cpus.clone(), idle: grant.idle.clone() };
    }
    decided.bound.get(name).map_or(CpuShare::Any, |cpus| CpuShare::Bound(cpus.clone()))
}
