//! The status of a VM's latency sensitivity.

use taut_api::Name;
use taut_api::enforcement::HostReport;
use taut_api::latency::{LatencyState, LatencyStatus};
use taut_api::vm::{LatencySensitivity, VmDesired, VmKind};

use crate::facts::{Explanation, Observed};
use crate::network::coalescing::explain_no_batching;
use crate::placement::exclusive::{explain_missing, explain_ownership};
use crate::placement::workers::explain_fabric_threads;
use crate::resources::Decided;
use crate::resources::halt::explain_halt_in_guest;
use crate::resources::memory::explain_locked_memory;

/// Explains what was decided for a latency-sensitive VM; `None` for one that is `normal`.
pub fn explain_latency(
    observed: &Observed,
    report: &HostReport,
    decided: &Decided,
    name: &Name,
    vm: &VmDesired,
) -> Option<LatencyStatus> {
    let spec = &vm.vm;
    if spec.latency_sensitivity == LatencySensitivity::Normal {
        return None;
    }
    let process = observed.process(name);
    let grant = decided.placement.granted.get(name);
    let mut told = Explanation::default();
    if let Some(grant) = grant {
        told.append(explain_ownership(observed, report, grant));
        if let Some(near) = &decided.near {
            told.append(explain_fabric_threads(near, &observed.host, spec, grant));
        }
    }
    told.append(explain_no_batching());
    told.append(explain_locked_memory(process));
    if spec.kind == VmKind::Qemu && grant.is_some() {
        told.append(explain_halt_in_guest(process));
    }
    told.append(explain_missing(observed, report, &decided.placement, name, vm));

    let owns = report.vms.get(name).filter(|_| grant.is_some());
    let waits = grant.is_some() && !owns.is_some_and(|vm| vm.bound);
    let intruded = owns.is_some_and(|vm| !vm.exclusive);
    let restart = told.decisions.iter().any(|decision| decision.restart);
    let state = match process {
        None => LatencyState::Waiting,
        Some(_) if waits => LatencyState::Waiting,
        Some(_) if intruded || restart || !told.missing.is_empty() => LatencyState::Partly,
        Some(_) => LatencyState::Granted,
    };
    Some(LatencyStatus {
        state,
        cpus: grant.map(|grant| grant.cpus.clone()).unwrap_or_default(),
        idle: grant.map(|grant| grant.idle.clone()).unwrap_or_default(),
        missing: told.missing,
        decisions: told.decisions,
    })
}

#[cfg(test)]
mod tests;
