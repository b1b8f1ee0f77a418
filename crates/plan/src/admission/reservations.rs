//! Reservations and latency sensitivity against the capacity of the host (LS-2, LS-3).
//!
//! Reservations count while a VM is wanted on. All memory can be reserved except the host's own
//! part, and all pCPUs except one.

use taut_api::enforcement::HostReport;
use taut_api::vm::{LatencySensitivity, Power, VmDesired, VmSpec};
use taut_api::word::counted;
use taut_api::{ApiError, Bytes, Name};

use super::limits::admit_limits;
use super::refusal::{conflict, invalid};
use crate::facts::reservation::{
    counted_pcpus, level_name, memory_is_reserved, pcpus, reservable_memory, reserved_cpu, reserved_memory,
};
use crate::facts::{Desired, HostSeen, MachineSize, Observed};
use crate::placement::exclusive::{place_exclusive_vcpus, state_problem};
use crate::placement::problem::{Placement, Problem};
use crate::placement::shortage::explain_shortage;
use crate::placement::solve::place;
use crate::resources::memory::{most_memory, oversize};

/// Admits a VM's reservations, limits and latency sensitivity, and its start if it is wanted on.
/// `vm` is already valid in itself.
///
/// # Errors
/// When something is missing; the message says how much.
pub fn admit_reservations(
    desired: &Desired,
    observed: &Observed,
    report: &HostReport,
    name: &Name,
    vm: &VmDesired,
) -> Result<(), ApiError> {
    let promised = desired.as_promised(observed);
    let desired = &*promised;
    let (spec, host) = (&vm.vm, &observed.host);
    admit_limits(host, name, spec)?;
    admit_sensitivity(name, spec)?;
    if vm.power == Power::Off {
        return Ok(());
    }
    admit_size(observed, name, spec)?;
    let mut next = desired.clone();
    next.vms.insert(name.clone(), vm.clone());
    // VMs that are on and have not been placed yet come before a newcomer.
    let mut problem = state_problem(&next, observed, report);
    let before = place_exclusive_vcpus(desired, observed, report).granted;
    problem.current = before.into_iter().map(|(name, grant)| (name, grant.cpus)).collect();
    let placement = place(&problem);
    admit_memory(&next, host, name, spec)?;
    admit_cpu(&next, host, name, spec)?;
    match placement.short.get(name) {
        Some(shortage) => {
            let (message, hint) = explain_shortage(host, name, spec, shortage);
            Err(conflict(message, hint))
        }
        None => admit_beside_exclusive(&problem, &placement, host, name, spec),
    }
}

/// A VM that starts has at most the memory of the host.
fn admit_size(observed: &Observed, name: &Name, spec: &VmSpec) -> Result<(), ApiError> {
    oversize(spec, &observed.host).map_or(Ok(()), |reason| {
        let what = if observed.process(name).is_some() {
            "runs, and could not be started again with this memory"
        } else {
            "cannot be started"
        };
        let beside = MachineSize::of(spec).nvdimm();
        let most = Bytes(most_memory(&observed.host).0.saturating_sub(beside.0));
        Err(conflict(
            format!("VM `{name}` {what}: {reason}"),
            format!("give it at most {most} of memory; a VM that is off may have more until it starts"),
        ))
    })
}

/// A latency-sensitive VM needs a full memory reservation.
fn admit_sensitivity(name: &Name, spec: &VmSpec) -> Result<(), ApiError> {
    if spec.latency_sensitivity == LatencySensitivity::Normal || memory_is_reserved(spec) {
        return Ok(());
    }
    let reserved = spec.memory_reservation.of(spec.memory);
    let missing = Bytes(spec.memory.0 - reserved.0);
    Err(invalid(
        format!(
            "latency_sensitivity = \"{}\" of VM `{name}` requires a full memory reservation: {reserved} of \
             {} are reserved, {missing} are missing",
            level_name(spec.latency_sensitivity),
            spec.memory
        ),
        "reserve all of it: memory_reservation = \"full\" in its file, or taut vm set --memory-reservation full; \
         for pCPUs of its own, also --cpu-reservation full",
    ))
}

fn admit_memory(desired: &Desired, host: &HostSeen, name: &Name, spec: &VmSpec) -> Result<(), ApiError> {
    let wanted = reserved_memory(spec).0;
    let others = desired.vms_on().filter(|(other, _)| *other != name);
    let others: u64 = others.map(|(_, vm)| reserved_memory(&vm.vm).0).sum();
    let capacity = reservable_memory(host.memory_total);
    let unreserved = capacity.0.saturating_sub(others);
    if wanted == 0 || wanted <= unreserved {
        return Ok(());
    }
    let queue_pairs = match Bytes(wanted.saturating_sub(spec.memory.0)).as_mib() {
        0 => String::new(),
        mib => format!(", {mib} MiB of these for queue pairs"),
    };
    Err(conflict(
        format!(
            "VM `{name}` reserves {} MiB of memory{queue_pairs}, but only {} MiB are unreserved: {} MiB can be \
             reserved on this host of {} MiB, and running VMs have reserved {} MiB; {} MiB are missing",
            Bytes(wanted).as_mib(),
            Bytes(unreserved).as_mib(),
            capacity.as_mib(),
            host.memory_total.as_mib(),
            Bytes(others).as_mib(),
            Bytes(wanted - unreserved + (1 << 20) - 1).as_mib()
        ),
        "stop a VM that has a reservation, or reserve less",
    ))
}

fn admit_cpu(desired: &Desired, host: &HostSeen, name: &Name, spec: &VmSpec) -> Result<(), ApiError> {
    let wanted = reserved_cpu(spec, host);
    let others = desired.vms_on().filter(|(other, _)| *other != name);
    let others: u64 = others.map(|(_, vm)| reserved_cpu(&vm.vm, host)).sum();
    let cpus = host.cpus.len();
    let capacity = cpus.saturating_sub(1) as u64 * 1000;
    if wanted == 0 || wanted + others <= capacity {
        return Ok(());
    }
    let hint = "stop a VM that has a reservation, reserve less, or give the VM fewer vCPUs";
    if wanted > capacity {
        return Err(conflict(
            format!(
                "VM `{name}` reserves {} for its {}, but this host has {cpus} and one always \
                 stays for the host itself: {} can be reserved",
                counted_pcpus(wanted),
                counted(spec.vcpus, "vCPU"),
                pcpus(capacity)
            ),
            hint,
        ));
    }
    Err(conflict(
        format!(
            "VM `{name}` reserves {}, but the host would be over-committed: of {} that can be \
             reserved, running VMs have reserved {}; {} are missing",
            counted_pcpus(wanted),
            pcpus(capacity),
            pcpus(others),
            pcpus(wanted + others - capacity)
        ),
        hint,
    ))
}

/// The CPU reservations of VMs without exclusive pCPUs must fit into the pCPUs that no VM owns.
fn admit_beside_exclusive(
    problem: &Problem,
    placement: &Placement,
    host: &HostSeen,
    name: &Name,
    spec: &VmSpec,
) -> Result<(), ApiError> {
    let owned = placement.exclusive().len();
    let left = (host.cpus.len() - owned) as u64 * 1000;
    let wanted = reserved_cpu(spec, host);
    if problem.demands.contains_key(name) || wanted == 0 || problem.promised <= left {
        return Ok(());
    }
    Err(conflict(
        format!(
            "VM `{name}` reserves {}, but the host would be over-committed: other VMs own {owned} of \
             its {}, with SMT siblings that stay idle, and {} would be reserved of the {} that are left",
            counted_pcpus(wanted),
            counted(host.cpus.len(), "pCPU"),
            pcpus(problem.promised),
            pcpus(left)
        ),
        "stop a latency-sensitive VM, or reserve less",
    ))
}

#[cfg(test)]
mod tests;
