//! Exclusive pCPUs for the vCPUs of latency-sensitive VMs (LS-3, LS-4).

use taut_api::Name;
use taut_api::enforcement::{Hierarchy, HostReport};
use taut_api::placement::Numbers;
use taut_api::vm::{LatencySensitivity, VmDesired};
use taut_api::word::counted;

use super::problem::{Demand, Grant, Placement, Problem};
use super::shortage::explain_shortage;
use super::solve::place;
use crate::facts::reservation::{counted_pcpus, cpu_is_reserved, reserved_cpu, wants_exclusive_pcpus};
use crate::facts::{Desired, Explanation, Observed, Row};

/// Gives each vCPU of each VM that is to own pCPUs one of its own, as far as there are enough.
pub fn place_exclusive_vcpus(desired: &Desired, observed: &Observed, report: &HostReport) -> Placement {
    place(&state_problem(desired, observed, report))
}

/// States which VMs are to own pCPUs, what they own now, and what is reserved for others.
pub(crate) fn state_problem(desired: &Desired, observed: &Observed, report: &HostReport) -> Problem {
    let host = &observed.host;
    if observed.restored {
        return Problem { cpus: host.cpus.clone(), ..Problem::default() };
    }
    let fabric_cpus = desired.workers.cpus.iter().chain(&desired.socket_worker.cpu).copied().collect();
    let (exclusive, shared): (Vec<_>, Vec<_>) =
        desired.vms_on().partition(|(_, vm)| wants_exclusive_pcpus(vm, host));
    let demand = |vm: &VmDesired| Demand {
        vcpus: vm.vm.vcpus,
        threads: vm.vm.latency_sensitivity == LatencySensitivity::HighHt,
        allowed: host.allowed_pcpus(&vm.vm.placement),
    };
    let owners = report.vms.iter().filter(|(_, vm)| !vm.cpus.is_empty());
    Problem {
        cpus: host.cpus.clone(),
        fabric_cpus,
        promised: shared.into_iter().map(|(_, vm)| reserved_cpu(&vm.vm, host)).sum(),
        demands: exclusive.into_iter().map(|(name, vm)| (name.clone(), demand(vm))).collect(),
        current: owners.map(|(name, vm)| (name.clone(), vm.cpus.clone())).collect(),
    }
}

/// Explains the pCPUs that a VM owns, and what keeps others off them.
pub(crate) fn explain_ownership(observed: &Observed, report: &HostReport, grant: &Grant) -> Explanation {
    let mut told = Explanation::default();
    let Grant { cpus, idle } = grant;
    for (vcpu, cpu) in cpus.iter().enumerate() {
        told.decide(format!("vCPU {vcpu} owns pCPU {cpu}"), why_this_pcpu(observed, *cpu));
    }
    if !idle.is_empty() {
        told.decide(
            format!("{} {} idle", named(idle), if idle.len() == 1 { "stays" } else { "stay" }),
            Row::IdleSiblings.because("a busy SMT sibling would slow its vCPUs down"),
        );
    }
    for interrupt in &report.fixed_interrupts {
        let here: Vec<u32> = cpus.iter().filter(|cpu| interrupt.cpus.contains(cpu)).copied().collect();
        if !here.is_empty() {
            told.decide(
                format!("{interrupt} may still arrive at {}", named(&here)),
                Row::ExclusivePcpus.because(format!("this interrupt cannot be moved: {}", interrupt.why)),
            );
        }
    }
    let fence = match observed.host.controllers.cpuset {
        Hierarchy::V1 => Some("a cpuset of cgroup v1 confines all other processes to other pCPUs"),
        Hierarchy::V2 => Some("an isolated partition of cgroup v2 takes them from all other processes"),
        Hierarchy::None => None,
    };
    if let Some(fence) = fence {
        told.decide(
            format!("other processes are kept off {}", named(cpus)),
            Row::ExclusivePcpus.because(fence),
        );
    }
    told.decide(
        format!("{} may sleep only lightly", named(cpus)),
        Row::FastWakeUp.because(
            "a pCPU takes time to leave a deep sleep state, so the kernel is told that none is tolerable \
             (pm_qos_resume_latency_us)",
        ),
    );
    told.decide(
        "the fabric, and the VM's threads other than vCPUs, have real-time priority on other pCPUs",
        Row::ExclusivePcpus.because(
            "its vCPUs wait for these threads, so these do not wait for the time slice of a neighbour",
        ),
    );
    told
}

/// Names pCPUs: `pCPU 3`, `pCPUs 2-3`.
fn named(cpus: &[u32]) -> String {
    cpus.iter().copied().collect::<Numbers>().named("pCPU")
}

fn why_this_pcpu(observed: &Observed, cpu: u32) -> String {
    let place = observed.host.cpus.iter().find(|found| found.id == cpu);
    let place = place.map(|cpu| format!(" (NUMA node {}, cache {})", cpu.node, cpu.llc)).unwrap_or_default();
    Row::ExclusivePcpus.because(format!(
        "CPU and memory are fully reserved, and no other VM owns a pCPU of this core{place}"
    ))
}

/// Explains what a latency-sensitive VM lacks: exclusive pCPUs, or part of what protects them.
pub(crate) fn explain_missing(
    observed: &Observed,
    report: &HostReport,
    placement: &Placement,
    name: &Name,
    vm: &VmDesired,
) -> Explanation {
    let spec = &vm.vm;
    let mut told = Explanation::default();
    if observed.restored {
        told.lack("`taut host restore` put everything back: the next change of any setting applies it again");
    } else if !cpu_is_reserved(spec, &observed.host) {
        let reserved = match reserved_cpu(spec, &observed.host) {
            0 => "no CPU".to_owned(),
            reserved => counted_pcpus(reserved),
        };
        told.lack(format!(
            "no exclusive pCPUs: it reserves {reserved} for its {}, and only a VM that reserves a whole \
             pCPU for each vCPU owns pCPUs; hint: `taut vm set {name} --cpu-reservation full`",
            counted(spec.vcpus, "vCPU")
        ));
    }
    if placement.granted.contains_key(name) {
        told.missing.extend(report.cpu_problems.iter().cloned());
    }
    if let Some(shortage) = placement.short.get(name) {
        told.lack(explain_shortage(&observed.host, name, spec, shortage).0);
    }
    told
}
