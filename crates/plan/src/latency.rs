//! Reservations and latency sensitivity: who may have them (SPEC LS-2, LS-3), and what was decided for whom.
//!
//! Reservations count while a VM is wanted on. Memory: the sixteenth part of the host's (at least 256 MiB) stays for the host
//! itself, the rest can be reserved. CPU: all pCPUs but one can. A VM whose CPU is not fully reserved has no exclusive pCPUs:
//! somebody else may hold a promise on the very pCPU that it would own.

use taut_api::latency::{Decision, LatencyState, LatencyStatus};
use taut_api::vm::{LatencySensitivity, Power, VmDesired, VmKind, VmSpec};
use taut_api::{ApiError, Bytes, Name};

use crate::admission::{conflict, invalid};
use crate::affinity::allowed;
use crate::placement::{self, Demand, Placement, Problem, Shortage};
use crate::{Decided, Desired, Hierarchy, Observed, Process, shares, workers};

/// Least memory that stays for the host.
const HOST_MEMORY: Bytes = Bytes::mib(256);

/// Is the VM latency-sensitive?
pub fn is_sensitive(desired: &Desired, vm: &Name) -> bool {
    desired.vms.get(vm).is_some_and(|vm| vm.vm.latency_sensitivity != LatencySensitivity::Normal)
}

/// Is all of the VM's memory reserved?
pub fn memory_is_reserved(vm: &VmSpec) -> bool {
    vm.memory_reservation.of(vm.memory) == vm.memory
}

/// Who owns which pCPUs.
pub fn rule(desired: &Desired, observed: &Observed) -> Placement {
    placement::place(&problem(desired, observed))
}

/// May the VM be so, and be on if it is wanted on? `spec` is already valid in itself.
///
/// # Errors
/// Each with what is missing, in numbers.
pub fn admit(desired: &Desired, observed: &Observed, name: &Name, vm: &VmDesired) -> Result<(), ApiError> {
    let spec = &vm.vm;
    shares::check(observed, name, spec)?;
    let sensitive = spec.latency_sensitivity != LatencySensitivity::Normal;
    if sensitive && !memory_is_reserved(spec) {
        let reserved = spec.memory_reservation.of(spec.memory);
        let missing = Bytes(spec.memory.0 - reserved.0);
        return Err(invalid(
            format!(
                "latency_sensitivity = \"{}\" of VM `{name}` needs all of its memory reserved: {reserved} of {} are, {missing} are missing",
                word(spec.latency_sensitivity),
                spec.memory
            ),
            "reserve it: memory_reservation = \"full\" in its file, or taut vm set --memory-reservation full",
        ));
    }
    if vm.power == Power::Off {
        return Ok(());
    }
    let mut next = desired.clone();
    next.vms.insert(name.clone(), vm.clone());
    // VMs that are on and have not been placed yet come before a newcomer.
    let mut problem = problem(&next, observed);
    let before = rule(desired, observed).granted;
    problem.current = before.into_iter().map(|(name, grant)| (name, grant.cpus)).collect();
    let placement = placement::place(&problem);
    memory(&next, observed, name, spec)?;
    cpu(&next, observed, name, spec)?;
    match placement.short.get(name) {
        Some(shortage) => {
            let (message, hint) = explain_shortage(observed, name, spec, shortage);
            Err(conflict(message, hint))
        }
        None => exclusive_left(&problem, &placement, observed, name, spec),
    }
}

/// Memory that can be reserved on a host with this much.
pub fn reservable_memory(total: Bytes) -> Bytes {
    Bytes(total.0 - (total.0 / 16).max(HOST_MEMORY.0).min(total.0))
}

fn memory(desired: &Desired, observed: &Observed, name: &Name, spec: &VmSpec) -> Result<(), ApiError> {
    let wanted = spec.memory_reservation.of(spec.memory);
    let others: u64 = on(desired).filter(|(other, _)| *other != name).map(|(_, vm)| reserved(&vm.vm)).sum();
    let capacity = reservable_memory(observed.memory_total);
    let unreserved = capacity.0.saturating_sub(others);
    if wanted.0 == 0 || wanted.0 <= unreserved {
        return Ok(());
    }
    Err(conflict(
        format!(
            "VM `{name}` reserves {} MiB of memory, but only {} MiB are unreserved: {} MiB can be reserved on this host of {} MiB, \
             and running VMs have reserved {} MiB; {} MiB are missing",
            wanted.as_mib(),
            Bytes(unreserved).as_mib(),
            capacity.as_mib(),
            observed.memory_total.as_mib(),
            Bytes(others).as_mib(),
            Bytes(wanted.0 - unreserved + (1 << 20) - 1).as_mib()
        ),
        "stop a VM that has a reservation, or reserve less",
    ))
}

fn reserved(spec: &VmSpec) -> u64 {
    spec.memory_reservation.of(spec.memory).0
}

fn cpu(desired: &Desired, observed: &Observed, name: &Name, spec: &VmSpec) -> Result<(), ApiError> {
    let wanted = thousandths(spec, observed);
    let others: u64 =
        on(desired).filter(|(other, _)| *other != name).map(|(_, vm)| thousandths(&vm.vm, observed)).sum();
    let cpus = observed.cpus.len();
    let capacity = cpus.saturating_sub(1) as u64 * 1000;
    if wanted == 0 || wanted + others <= capacity {
        return Ok(());
    }
    let hint = "stop a VM that has a reservation, reserve less, or give the VM fewer vCPUs";
    if wanted > capacity {
        return Err(conflict(
            format!(
                "VM `{name}` reserves {} pCPUs for its {} vCPUs, but this host has {cpus} and one always stays for the host itself: {} \
                 can be reserved",
                pcpus(wanted),
                spec.vcpus,
                pcpus(capacity)
            ),
            hint,
        ));
    }
    Err(conflict(
        format!(
            "VM `{name}` reserves {} pCPUs, but the host would be over-committed: of {} that can be reserved, running VMs have \
             reserved {}; {} are missing",
            pcpus(wanted),
            pcpus(capacity),
            pcpus(others),
            pcpus(wanted + others - capacity)
        ),
        hint,
    ))
}

/// What VMs without exclusive pCPUs were promised must fit beside those that have some, with their idle siblings.
fn exclusive_left(
    problem: &Problem,
    placement: &Placement,
    observed: &Observed,
    name: &Name,
    spec: &VmSpec,
) -> Result<(), ApiError> {
    let owned = placement.exclusive().len();
    let left = (observed.cpus.len() - owned) as u64 * 1000;
    if problem.demands.contains_key(name) || thousandths(spec, observed) == 0 || problem.promised <= left {
        return Ok(());
    }
    Err(conflict(
        format!(
            "VM `{name}` reserves {} pCPUs, but the host would be over-committed: {owned} of its {} pCPUs are exclusively other VMs' or \
             their idle siblings, and {} would be promised of the {} that are left",
            pcpus(thousandths(spec, observed)),
            observed.cpus.len(),
            pcpus(problem.promised),
            pcpus(left)
        ),
        "stop a latency-sensitive VM, or reserve less",
    ))
}

fn explain_shortage(
    observed: &Observed,
    name: &Name,
    spec: &VmSpec,
    shortage: &Shortage,
) -> (String, &'static str) {
    let Shortage { cores, free, elsewhere, taken, host, promised } = shortage;
    let smt = is_smt(observed);
    let unit =
        if smt { "whole cores (an SMT sibling is never shared with others)" } else { "exclusive pCPUs" };
    let wants = format!(
        "latency_sensitivity = \"{}\" of VM `{name}` needs {cores} {unit} for its {} vCPUs",
        word(spec.latency_sensitivity),
        spec.vcpus
    );
    if let Some((promised, left)) = promised {
        return (
            format!(
                "{wants}, but the host would be over-committed: other VMs were promised {} pCPUs, and {} would be left",
                pcpus(*promised),
                pcpus(*left)
            ),
            "stop a VM that has a CPU reservation, or give this one fewer vCPUs",
        );
    }
    let owners: Vec<_> =
        taken.iter().map(|(owner, count)| format!("{count} belong to VM `{owner}`")).collect();
    let outside = if *elsewhere == 0 {
        String::new()
    } else {
        format!(
            ", {elsewhere} are free and not among pCPUs {} on nodes {}",
            spec.placement.cpus, spec.placement.nodes
        )
    };
    let owners = if owners.is_empty() { String::new() } else { format!(", {}", owners.join(", ")) };
    let kinds = if smt { "cores" } else { "pCPUs" };
    (
        format!(
            "{wants}, but {free} are free: of the host's {} {kinds}, {host} stay for the host and what is bound to them \
             (--fabric-cpus, --vmci-cpu){owners}{outside}",
            free + elsewhere + host + taken.values().sum::<usize>()
        ),
        "give the VM fewer vCPUs, set another one to normal, or bind the fabric's workers to the host's first pCPU",
    )
}

fn is_smt(observed: &Observed) -> bool {
    let cores: std::collections::BTreeSet<_> =
        observed.cpus.iter().map(|cpu| (cpu.package, cpu.core)).collect();
    cores.len() < observed.cpus.len()
}

/// VMs that are wanted on.
fn on(desired: &Desired) -> impl Iterator<Item = (&Name, &VmDesired)> {
    desired.vms.iter().filter(|(_, vm)| vm.power == Power::On)
}

pub(crate) fn thousandths(spec: &VmSpec, observed: &Observed) -> u64 {
    spec.cpu.reservation.thousandths(spec.vcpus, observed.cpu_mhz)
}

fn cpu_is_reserved(spec: &VmSpec, observed: &Observed) -> bool {
    thousandths(spec, observed) == u64::from(spec.vcpus) * 1000
}

pub(crate) fn wants_exclusive(vm: &VmDesired, observed: &Observed) -> bool {
    vm.vm.latency_sensitivity != LatencySensitivity::Normal
        && vm.power == Power::On
        && memory_is_reserved(&vm.vm)
        && cpu_is_reserved(&vm.vm, observed)
}

fn problem(desired: &Desired, observed: &Observed) -> Problem {
    if observed.restored {
        return Problem { cpus: observed.cpus.clone(), ..Problem::default() };
    }
    let bound = desired.workers.cpus.iter().chain(&desired.socket_worker.cpu).copied().collect();
    let (exclusive, shared): (Vec<_>, Vec<_>) =
        on(desired).partition(|(_, vm)| wants_exclusive(vm, observed));
    let demand = |vm: &VmDesired| Demand {
        vcpus: vm.vm.vcpus,
        threads: vm.vm.latency_sensitivity == LatencySensitivity::HighHt,
        allowed: allowed(&vm.vm, observed),
    };
    Problem {
        cpus: observed.cpus.clone(),
        bound,
        promised: shared.into_iter().map(|(_, vm)| thousandths(&vm.vm, observed)).sum(),
        demands: exclusive.into_iter().map(|(name, vm)| (name.clone(), demand(vm))).collect(),
        current: observed.exclusive.clone(),
    }
}

/// What the plan decided for a latency-sensitive VM, and why; nothing for one that is `normal`.
pub fn explain(observed: &Observed, decided: &Decided, name: &Name, vm: &VmDesired) -> Option<LatencyStatus> {
    let spec = &vm.vm;
    if spec.latency_sensitivity == LatencySensitivity::Normal {
        return None;
    }
    let process = observed.vms.get(name).and_then(|seen| seen.process.as_ref());
    let mut status = LatencyStatus::default();
    let mut decide = |decision: String, rule: &str, restart: bool| {
        status.decisions.push(Decision { decision, rule: rule.to_owned(), restart });
    };
    let placement = &decided.placement;
    let grant = placement.granted.get(name);
    if let Some(grant) = grant {
        for (vcpu, cpu) in grant.cpus.iter().enumerate() {
            decide(format!("vCPU {vcpu} owns pCPU {cpu}"), &why_there(observed, *cpu), false);
        }
        if !grant.idle.is_empty() {
            decide(
                format!("pCPUs {:?} stay idle", grant.idle),
                "LS-4: nobody runs beside it on its cores",
                false,
            );
        }
        for (cpus, which, why) in &observed.fixed_interrupts {
            let here: Vec<u32> = grant.cpus.iter().filter(|cpu| cpus.contains(cpu)).copied().collect();
            if !here.is_empty() {
                let rule = format!("LS-3: what can be moved is moved; this cannot: {why}");
                decide(format!("{which} may still come to pCPUs {here:?}"), &rule, false);
            }
        }
        let fence = match observed.controllers.cpuset {
            Hierarchy::V1 => Some("a cpuset of cgroup v1 holds everybody else"),
            Hierarchy::V2 => Some("an isolated partition of cgroup v2 takes them from everybody else"),
            Hierarchy::None => None,
        };
        if let Some(fence) = fence {
            decide(format!("others are kept off pCPUs {:?}", grant.cpus), &format!("LS-3: {fence}"), false);
        }
        decide(
            format!("pCPUs {:?} do not sleep deeper than they can be woken at once", grant.cpus),
            "LS-6: pm_qos_resume_latency_us is n/a, no latency tolerated",
            false,
        );
        decide(
            "the fabric, and its own threads besides its vCPUs, go before everybody else on the other pCPUs"
                .to_owned(),
            "LS-3: what it waits for does not wait for a time slice of a neighbour's",
            false,
        );
    }
    let near = decided.near.as_ref().zip(grant);
    if let Some(told) = near.and_then(|(near, grant)| workers::explain(near, observed, spec, grant)) {
        decide(told.decision, &told.rule, told.restart);
    }
    decide(
        "coalescing is disabled and LRO off on its virtio cards that do not say otherwise".to_owned(),
        "LS-7: both wait for more to come",
        false,
    );
    locked(process, &mut decide);
    if spec.kind == VmKind::Qemu && grant.is_some() {
        cpu_pm(process, &mut decide);
    }
    status.missing = missing(observed, name, vm, placement);
    if let Some(grant) = grant {
        status.cpus.clone_from(&grant.cpus);
        status.idle.clone_from(&grant.idle);
    }
    let in_force = observed.in_force.contains(name);
    let restart = status.decisions.iter().any(|decision| decision.restart);
    status.state = match process {
        None => LatencyState::Waiting,
        Some(_) if grant.is_some() && !in_force => LatencyState::Waiting,
        Some(_) if !status.missing.is_empty() || restart => LatencyState::Partly,
        Some(_) => LatencyState::Granted,
    };
    Some(status)
}

fn why_there(observed: &Observed, cpu: u32) -> String {
    let place = observed.cpus.iter().find(|found| found.id == cpu);
    let place = place.map(|cpu| format!(" (node {}, cache {})", cpu.node, cpu.llc)).unwrap_or_default();
    format!(
        "LS-3: CPU and memory are fully reserved; a free core{place}, beside its others where possible, never the host's first"
    )
}

fn locked(process: Option<&Process>, decide: &mut impl FnMut(String, &str, bool)) {
    let later = process.is_some_and(|process| process.kind == VmKind::Qemu && !process.locked);
    let when = if later { ", with its next start: it was started without" } else { "" };
    decide(format!("its memory is allocated and locked{when}"), "LS-5: all of it is reserved", later);
}

fn cpu_pm(process: Option<&Process>, decide: &mut impl FnMut(String, &str, bool)) {
    let rule = "LS-6: an idle vCPU halts inside the guest's own time, which KVM settles when the VM starts";
    match process {
        Some(process) if process.accelerator != "kvm" => decide(
            format!("idle vCPUs halt in the host's scheduler: the VM runs under {}", process.accelerator),
            "LS-6: only KVM lets a guest halt by itself",
            false,
        ),
        Some(process) if !process.cpu_pm => {
            decide("idle vCPUs halt in the guest with its next start".to_owned(), rule, true);
        }
        _ => decide("idle vCPUs halt in the guest".to_owned(), rule, false),
    }
}

fn missing(observed: &Observed, name: &Name, vm: &VmDesired, placement: &Placement) -> Vec<String> {
    let spec = &vm.vm;
    let mut missing = Vec::new();
    if observed.restored {
        missing.push(
            "everything was put back by `taut host restore`: it is taken again with the next change of any setting".to_owned(),
        );
    } else if !cpu_is_reserved(spec, observed) {
        missing.push(format!(
            "no exclusive pCPUs: {} of {} pCPUs are reserved, and a pCPU that is not reserved may be promised to others; \
             `taut vm set {name} --cpu-reservation full`",
            pcpus(thousandths(spec, observed)),
            spec.vcpus
        ));
    }
    if placement.granted.contains_key(name) {
        missing.extend(observed.host_problems.iter().cloned());
    }
    if let Some(shortage) = placement.short.get(name) {
        missing.push(explain_shortage(observed, name, spec, shortage).0);
    }
    missing
}

fn word(sensitivity: LatencySensitivity) -> &'static str {
    match sensitivity {
        LatencySensitivity::Normal => "normal",
        LatencySensitivity::High => "high",
        LatencySensitivity::HighHt => "high-ht",
    }
}

/// Thousandths as a number of pCPUs.
pub(crate) fn pcpus(thousandths: u64) -> String {
    let text = format!("{}.{:03}", thousandths / 1000, thousandths % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests;
