//! The VM's share of the host: latency sensitivity, reservations, size.

use taut_api::Bytes;
use taut_api::latency::LatencyState;
use taut_api::resources::CpuReservation;
use taut_api::vm::VmSpec;
use taut_api::word::counted;

use super::facts::{VmFacts, is_high};
use crate::checklist::line::{Item, Line, Profile, TakesEffect, Verdict};
use crate::facts::reservation::level_name;

const SENSITIVITY: Item = Item {
    id: "vm.latency-sensitivity",
    what: "latency sensitivity (ESX: sched.cpu.latencySensitivity)",
    why: "`high` gives each vCPU a pCPU of its own, locks the memory, halts idle vCPUs in the \
           guest, and turns coalescing and LRO off.",
    effect: "one setting for all of it; neighbours have fewer pCPUs. Set back to `normal`, a \
           running QEMU keeps cpu-pm until its next start",
    takes_effect: TakesEffect::Live,
};
const NORMAL: Item = SENSITIVITY.because(
    "`high` takes pCPUs from the other VMs, and locks memory that they could share.",
    "pCPUs and memory for more VMs; this VM waits for its turn like others",
);
const MEMORY: Item = Item {
    id: "vm.memory-reservation",
    what: "memory reservation (ESX: sched.mem.min)",
    why: "Memory that is not reserved can be reclaimed or swapped out. `high` requires a full \
           reservation.",
    effect: "memory is there when the guest touches it; no other VM can use it",
    takes_effect: TakesEffect::VmRestart,
};
const CPU: Item = Item {
    id: "vm.cpu-reservation",
    what: "CPU reservation (ESX: sched.cpu.min)",
    why: "A VM without a full CPU reservation gets no exclusive pCPUs, because the rest may be \
           promised to other VMs.",
    effect: "exclusive pCPUs, which other VMs cannot take",
    takes_effect: TakesEffect::Live,
};
const VCPUS: Item = Item {
    id: "vm.vcpus",
    what: "vCPUs that the VM is described with, and pCPUs of the host",
    why: "A VM with as many vCPUs as the host has pCPUs shares one with the host's own threads.",
    effect: "one pCPU is left for the host and the switch",
    takes_effect: TakesEffect::VmRestart,
};
const NODE: Item = Item {
    id: "vm.numa",
    what: "size that the VM is described with, and of a NUMA node (ESX: numa.nodeAffinity, numa.vcpu.min)",
    why: "All memory of a VM that fits into a node is local. A larger VM should know the host's \
           nodes.",
    effect: "no remote memory",
    takes_effect: TakesEffect::VmRestart,
};

pub(super) fn sensitivity(facts: &VmFacts<'_>, profile: Profile) -> Line {
    let level = level_name(facts.spec.latency_sensitivity);
    let (state, miss) = match facts.status.latency.as_ref().map(|latency| latency.state) {
        Some(LatencyState::Granted) => (", all in force", Verdict::Ok),
        Some(LatencyState::Partly) => (", partly in force: see `taut vm explain`", Verdict::Warn),
        Some(LatencyState::Waiting) | None => ("", Verdict::Ok),
    };
    let found = format!("{level}{state}");
    match (profile, is_high(facts.spec)) {
        (Profile::Latency, true) => SENSITIVITY.line(miss, found, "high"),
        (Profile::Latency, false) => SENSITIVITY.line(Verdict::Bad, found, "high"),
        (Profile::Throughput, _) => SENSITIVITY.line(Verdict::Ok, found, "any"),
        (Profile::Dense, true) => NORMAL.line(Verdict::Warn, found, "normal"),
        (Profile::Dense, false) => NORMAL.line(Verdict::Ok, found, "normal"),
    }
}

/// Judges the memory reservation, without which `high` is refused.
pub(super) fn memory(spec: &VmSpec, profile: Profile) -> Line {
    let kept = spec.memory_reservation.of(spec.memory);
    let found = format!("{kept} of {}", spec.memory);
    match profile {
        Profile::Latency if kept < spec.memory => MEMORY.line(Verdict::Bad, found, "all of it"),
        Profile::Latency => MEMORY.line(Verdict::Ok, found, "all of it"),
        Profile::Throughput | Profile::Dense => MEMORY.line(Verdict::Ok, found, "any"),
    }
}

/// Judges the CPU reservation. A reservation in MHz does not count as full, because that depends on
/// the frequency of the host.
pub(super) fn cpu(spec: &VmSpec, profile: Profile) -> Line {
    let kept = spec.cpu.reservation;
    let full = matches!(kept, CpuReservation::Full | CpuReservation::Percent(100));
    match profile {
        Profile::Latency if !full => CPU.line(Verdict::Warn, kept.to_string(), "full"),
        Profile::Latency => CPU.line(Verdict::Ok, kept.to_string(), "full"),
        Profile::Throughput | Profile::Dense => CPU.line(Verdict::Ok, kept.to_string(), "any"),
    }
}

/// Names the size that a VM has until its next start. The checklist judges the one that it gets
/// then.
fn until_restart(size: &str) -> String {
    format!(" from its next start on (now {size})")
}

pub(super) fn vcpus(facts: &VmFacts<'_>, profile: Profile) -> Line {
    let (vcpus, pcpus) = (facts.spec.vcpus as usize, facts.host.cpus.len());
    let now = facts.status.size.filter(|size| size.vcpus != facts.spec.vcpus);
    let now = now.map(|size| until_restart(&counted(size.vcpus, "vCPU"))).unwrap_or_default();
    let found = format!("{}{now}, {}", counted(vcpus, "vCPU"), counted(pcpus, "pCPU"));
    let most = if profile == Profile::Latency { pcpus.saturating_sub(1).max(1) } else { pcpus };
    let verdict = if vcpus <= most { Verdict::Ok } else { Verdict::Bad };
    VCPUS.line(verdict, found, format!("at most {most}"))
}

pub(super) fn node(facts: &VmFacts<'_>) -> Line {
    let host = facts.host;
    let pcpus = |node| host.cpus.iter().filter(|cpu| cpu.node == node).count();
    let fits = host
        .nodes
        .iter()
        .any(|node| node.memory.0 > facts.spec.memory.0 && pcpus(node.id) >= facts.spec.vcpus as usize);
    let size = |vcpus, memory: Bytes| format!("{}, {memory}", counted(vcpus, "vCPU"));
    let (vcpus, memory) = (facts.spec.vcpus, facts.spec.memory);
    let now = facts.status.size.filter(|size| (size.vcpus, size.memory) != (vcpus, memory));
    let now = now.map(|now| until_restart(&size(now.vcpus, now.memory))).unwrap_or_default();
    let found = format!("{}{now}; {}", size(vcpus, memory), counted(host.nodes.len(), "node"));
    NODE.line(if fits { Verdict::Ok } else { Verdict::Warn }, found, "fits one node")
}
