//! A VM from outside (S3 "virtual NIC settings", "VM settings", "NUMA", "choice of guest OS"; S0's list).

use taut_api::Coalescing;
use taut_api::host::{AcceleratorKind, HostInfo};
use taut_api::latency::LatencyState;
use taut_api::resources::CpuReservation;
use taut_api::vm::{DiskBus, LatencySensitivity, NicModel, NicStatus, VmKind, VmSpec, VmStatus};

use super::line::{Item, Line, Profile, TakesEffect, Verdict};

/// What is known of a VM.
#[derive(Debug, Clone, Copy)]
pub struct VmFacts<'a> {
    /// Its name.
    pub name: &'a str,
    /// What its user wrote.
    pub spec: &'a VmSpec,
    /// What is observed of it.
    pub status: &'a VmStatus,
    /// Its host.
    pub host: &'a HostInfo,
}

const SENSITIVITY: Item = Item {
    id: "vm.latency-sensitivity",
    what: "latency sensitivity (ESX: sched.cpu.latencySensitivity)",
    why: "`high` gives each vCPU a pCPU of its own, keeps the memory in place, halts in the guest's own time and turns moderation and LRO off.",
    effect: "all of it with one setting, taken back with it; neighbours have fewer pCPUs",
    takes_effect: TakesEffect::Live,
};
const MEMORY: Item = Item {
    id: "vm.memory-reservation",
    what: "memory reservation (ESX: sched.mem.min)",
    why: "Memory that is not reserved can be reclaimed or swapped out; `high` is refused without it.",
    effect: "the memory is there when it is touched; nobody else can use it",
    takes_effect: TakesEffect::VmRestart,
};
const CPU: Item = Item {
    id: "vm.cpu-reservation",
    what: "CPU reservation (ESX: sched.cpu.min)",
    why: "Only full reservation guarantees exclusive pCPUs; without it they are given while the host is not over-committed.",
    effect: "exclusive pCPUs whatever else is started",
    takes_effect: TakesEffect::Live,
};
const VCPUS: Item = Item {
    id: "vm.vcpus",
    what: "vCPUs and the host's pCPUs",
    why: "A VM as wide as its host has to share a pCPU with the host's own threads; a vCPU without work costs and gains nothing.",
    effect: "a pCPU is left for the host and the switch",
    takes_effect: TakesEffect::VmRestart,
};
const NODE: Item = Item {
    id: "vm.numa",
    what: "fits a NUMA node (ESX: numa.nodeAffinity, numa.vcpu.min)",
    why: "A VM that fits a node has all its memory near; a wider one should know the host's nodes.",
    effect: "no far memory",
    takes_effect: TakesEffect::VmRestart,
};
const ACCELERATOR: Item = Item {
    id: "vm.accelerator",
    what: "how its vCPUs run",
    why: "Emulation is many times as slow as KVM.",
    effect: "the CPU's speed",
    takes_effect: TakesEffect::VmRestart,
};
const HALT: Item = Item {
    id: "vm.halt",
    what: "halting (ESX: monitor_control.halt_desched)",
    why: "A vCPU that halts inside the guest's own time is not descheduled: no scheduler on the way back.",
    effect: "wakes up in a few microseconds; its pCPU looks busy all the time. Comes with `high` and exclusive pCPUs",
    takes_effect: TakesEffect::VmRestart,
};
const MODEL: Item = Item {
    id: "vm.nic-model",
    what: "vNIC models (ESX: ethernetX.virtualDev)",
    why: "Only the paravirtual card is on the switch's own rings; QEMU's emulated ones trap at every register.",
    effect: "more packets for less CPU time, moderation and LRO can be set; the guest needs a virtio driver",
    takes_effect: TakesEffect::VmRestart,
};
const COALESCING: Item = Item {
    id: "vm.coalescing",
    what: "vNIC moderation (ESX: ethernetX.coalescingScheme)",
    why: "A batch of packets waits until it is complete, or its time is over.",
    effect: "packets reach the guest at once; more interrupts (`taut vm set`, or `high`)",
    takes_effect: TakesEffect::Live,
};
const LRO: Item = Item {
    id: "vm.lro",
    what: "vNIC LRO (ESX: disable_lro in the guest)",
    why: "Segments wait for their successors, and TCP acknowledges the merged ones late.",
    effect: "segments reach the guest as they come; more CPU time per byte",
    takes_effect: TakesEffect::Live,
};
const RINGS: Item = Item {
    id: "vm.rings",
    what: "receive rings",
    why: "A ring that is full drops packets, and TCP takes that for a crowded network.",
    effect: "bursts fit; a little memory",
    takes_effect: TakesEffect::VmRestart,
};
const QUEUES: Item = Item {
    id: "vm.queues",
    what: "queue pairs of vNICs",
    why: "One pair is served by one vCPU; pairs beyond the vCPUs are never used.",
    effect: "several vCPUs receive at the same time",
    takes_effect: TakesEffect::VmRestart,
};
const KERNEL: Item = Item {
    id: "vm.kernel",
    what: "kernel image",
    why: "Old kernels read slow clocks, tick when idle and have older drivers.",
    effect: "what `taut-guest check` says inside is what counts",
    takes_effect: TakesEffect::VmRestart,
};
const DISK: Item = Item {
    id: "vm.disk",
    what: "disk controller",
    why: "Emulated controllers trap several times a request, in the thread that also serves other devices.",
    effect: "fewer exits; the guest needs the driver",
    takes_effect: TakesEffect::VmRestart,
};

pub(super) fn lines(facts: &VmFacts<'_>, profile: Profile) -> Vec<Line> {
    let mut lines = vec![
        sensitivity(facts, profile),
        memory(facts.spec, profile),
        cpu(facts.spec, profile),
        vcpus(facts, profile),
        node(facts),
        accelerator(facts),
        halt(facts, profile),
    ];
    if !facts.spec.nics.is_empty() {
        lines.extend([
            model(facts.spec),
            coalescing(facts, profile),
            lro(facts, profile),
            rings(facts.spec, profile),
            queues(facts.spec, profile),
        ]);
    }
    lines.extend([kernel(facts.spec), disk(facts.spec)]);
    lines
}

fn is_high(spec: &VmSpec) -> bool {
    spec.latency_sensitivity != LatencySensitivity::Normal
}

fn sensitivity(facts: &VmFacts<'_>, profile: Profile) -> Line {
    let level = match facts.spec.latency_sensitivity {
        LatencySensitivity::Normal => "normal",
        LatencySensitivity::High => "high",
        LatencySensitivity::HighHt => "high-ht",
    };
    let (state, miss) = match facts.status.latency.as_ref().map(|latency| latency.state) {
        Some(LatencyState::Granted) => (", all in force", Verdict::Ok),
        Some(LatencyState::Partly) => (", partly in force: see `taut vm explain`", Verdict::Warn),
        Some(LatencyState::Refused) => (", refused: see `taut vm explain`", Verdict::Bad),
        Some(LatencyState::Waiting) | None => ("", Verdict::Ok),
    };
    let found = format!("{level}{state}");
    match (profile, is_high(facts.spec)) {
        (Profile::Latency, true) => SENSITIVITY.line(miss, found, "high"),
        (Profile::Latency, false) => SENSITIVITY.line(Verdict::Bad, found, "high"),
        (Profile::Throughput, _) => SENSITIVITY.line(Verdict::Ok, found, "any"),
        (Profile::Dense, true) => SENSITIVITY.line(Verdict::Warn, found, "normal"),
        (Profile::Dense, false) => SENSITIVITY.line(Verdict::Ok, found, "normal"),
    }
}

/// `high` is refused without it.
fn memory(spec: &VmSpec, profile: Profile) -> Line {
    let kept = spec.memory_reservation.of(spec.memory);
    let found = format!("{kept} of {}", spec.memory);
    match profile {
        Profile::Latency if kept < spec.memory => MEMORY.line(Verdict::Bad, found, "all of it"),
        Profile::Latency => MEMORY.line(Verdict::Ok, found, "all of it"),
        Profile::Throughput | Profile::Dense => MEMORY.line(Verdict::Ok, found, "any"),
    }
}

/// MHz are not counted here: they are full only on slow enough pCPUs.
fn cpu(spec: &VmSpec, profile: Profile) -> Line {
    let kept = spec.cpu.reservation;
    let full = matches!(kept, CpuReservation::Full | CpuReservation::Percent(100));
    match profile {
        Profile::Latency if !full => CPU.line(Verdict::Warn, kept.to_string(), "full"),
        Profile::Latency => CPU.line(Verdict::Ok, kept.to_string(), "full"),
        Profile::Throughput | Profile::Dense => CPU.line(Verdict::Ok, kept.to_string(), "any"),
    }
}

fn vcpus(facts: &VmFacts<'_>, profile: Profile) -> Line {
    let (vcpus, pcpus) = (facts.spec.vcpus as usize, facts.host.cpus.len());
    let found = format!("{vcpus} vCPUs, {pcpus} pCPUs");
    let most = if profile == Profile::Latency { pcpus.saturating_sub(1).max(1) } else { pcpus };
    let verdict = if vcpus <= most { Verdict::Ok } else { Verdict::Bad };
    VCPUS.line(verdict, found, format!("at most {most}"))
}

fn node(facts: &VmFacts<'_>) -> Line {
    let host = facts.host;
    let pcpus = |node| host.cpus.iter().filter(|cpu| cpu.node == node).count();
    let fits = host
        .nodes
        .iter()
        .any(|node| node.memory.0 > facts.spec.memory.0 && pcpus(node.id) >= facts.spec.vcpus as usize);
    let found = format!("{} vCPUs, {}; {} nodes", facts.spec.vcpus, facts.spec.memory, host.nodes.len());
    NODE.line(if fits { Verdict::Ok } else { Verdict::Warn }, found, "fits one node")
}

fn accelerator(facts: &VmFacts<'_>) -> Line {
    let expected = match (facts.spec.kind, facts.host.accelerator.kind) {
        (VmKind::Micro, _) => "native",
        (VmKind::Qemu, AcceleratorKind::Kvm) => "kvm",
        (VmKind::Qemu, AcceleratorKind::Tcg) => "tcg",
    };
    let found = facts.status.accelerator.as_deref().unwrap_or(expected);
    ACCELERATOR.line(if found == "tcg" { Verdict::Bad } else { Verdict::Ok }, found, "kvm")
}

fn halt(facts: &VmFacts<'_>, profile: Profile) -> Line {
    let found =
        if is_high(facts.spec) { "in the guest, once pCPUs are exclusive" } else { "through the host" };
    match profile {
        Profile::Latency if !is_high(facts.spec) => HALT.line(Verdict::Warn, found, "in the guest"),
        Profile::Latency => HALT.line(Verdict::Ok, found, "in the guest"),
        Profile::Throughput | Profile::Dense => HALT.line(Verdict::Ok, found, "any"),
    }
}

fn model(spec: &VmSpec) -> Line {
    let name = |model| match model {
        NicModel::Virtio => "virtio",
        NicModel::Vmxnet3 => "vmxnet3",
        NicModel::E1000 => "e1000",
        NicModel::E1000e => "e1000e",
        NicModel::Vlance => "vlance",
    };
    let models: Vec<_> = spec.nics.iter().map(|nic| name(nic.model)).collect();
    let verdict = if models.iter().all(|model| *model == "virtio") { Verdict::Ok } else { Verdict::Bad };
    MODEL.line(verdict, models.join(", "), "virtio")
}

/// Vnics on the switch's own rings, as they are now; absent for those that QEMU emulates.
fn own_rings<'a>(facts: &VmFacts<'a>) -> Vec<(&'a NicStatus, Coalescing)> {
    facts.status.nics.iter().filter_map(|nic| Some((nic, nic.coalescing?))).collect()
}

fn coalescing(facts: &VmFacts<'_>, profile: Profile) -> Line {
    let wanted = if profile == Profile::Latency { "disabled" } else { "rbc, adapt or static" };
    let nics = own_rings(facts);
    if nics.is_empty() {
        return COALESCING.unknown("no vNIC with moderation of its own", wanted);
    }
    let off = |(_, scheme): &(&NicStatus, Coalescing)| *scheme == Coalescing::Disabled;
    let found: Vec<_> = nics.iter().map(|(_, scheme)| scheme.to_string()).collect();
    let verdict = match profile {
        Profile::Latency if !nics.iter().all(off) => Verdict::Bad,
        Profile::Throughput | Profile::Dense if nics.iter().any(off) => Verdict::Warn,
        _ => Verdict::Ok,
    };
    COALESCING.line(verdict, found.join(", "), wanted)
}

fn lro(facts: &VmFacts<'_>, profile: Profile) -> Line {
    let wanted = if profile == Profile::Latency { "off" } else { "on" };
    let nics = own_rings(facts);
    if nics.is_empty() {
        return LRO.unknown("no vNIC with LRO", wanted);
    }
    let states: Vec<_> = nics.iter().map(|(nic, _)| if nic.lro { "on" } else { "off" }).collect();
    let verdict = if states.iter().all(|state| *state == wanted) { Verdict::Ok } else { Verdict::Warn };
    LRO.line(verdict, states.join(", "), wanted)
}

fn rings(spec: &VmSpec, profile: Profile) -> Line {
    let least = if profile == Profile::Throughput { 512 } else { 256 };
    let found: Vec<_> = spec.nics.iter().map(|nic| nic.rings.rx.to_string()).collect();
    let enough = spec.nics.iter().all(|nic| nic.rings.rx >= least);
    RINGS.line(
        if enough { Verdict::Ok } else { Verdict::Warn },
        found.join(", "),
        format!("at least {least}"),
    )
}

fn queues(spec: &VmSpec, profile: Profile) -> Line {
    let pairs: Vec<_> = spec.nics.iter().map(|nic| u32::from(nic.queues.get())).collect();
    let found: Vec<_> = pairs.iter().map(u32::to_string).collect();
    let too_many = pairs.iter().any(|pairs| *pairs > spec.vcpus);
    let too_few = profile == Profile::Throughput && spec.vcpus > 1 && pairs.contains(&1);
    let verdict = if too_many || too_few { Verdict::Warn } else { Verdict::Ok };
    let wanted = if profile == Profile::Throughput { "one a vCPU" } else { "at most one a vCPU" };
    QUEUES.line(verdict, found.join(", "), wanted)
}

fn kernel(spec: &VmSpec) -> Line {
    let wanted = "6.1 or newer";
    match (&spec.boot, spec.kind) {
        (_, VmKind::Micro) => KERNEL.line(Verdict::Ok, "none: a microguest", wanted),
        (Some(boot), _) => KERNEL.unknown(&boot.kernel, wanted),
        (None, _) => KERNEL.unknown("on its disk", wanted),
    }
}

fn disk(spec: &VmSpec) -> Line {
    let wanted = "virtio, nvme or pvscsi";
    match spec.disk.as_ref().map(|disk| disk.bus) {
        None => DISK.line(Verdict::Ok, "none", wanted),
        Some(DiskBus::Virtio) => DISK.line(Verdict::Ok, "virtio", wanted),
        Some(DiskBus::Nvme) => DISK.line(Verdict::Ok, "nvme", wanted),
        Some(DiskBus::Pvscsi) => DISK.line(Verdict::Ok, "pvscsi", wanted),
        Some(DiskBus::Sata) => DISK.line(Verdict::Warn, "sata", wanted),
        Some(DiskBus::Lsisas1068) => DISK.line(Verdict::Warn, "lsisas1068", wanted),
    }
}

#[cfg(test)]
mod tests {
    use super::super::vm as judged;
    use super::*;

    fn spec(json: serde_json::Value) -> VmSpec {
        serde_json::from_value(json).unwrap()
    }

    fn host() -> HostInfo {
        let cpu = |id| serde_json::json!({ "id": id, "package": 0, "core": id, "node": id / 4, "llc": 0 });
        serde_json::from_value(serde_json::json!({
            "hostname": "h", "kernel": "6.12.0", "os": "Linux", "cpu_model": "CPU",
            "cpus": (0..8).map(cpu).collect::<Vec<_>>(),
            "nodes": [{ "id": 0, "memory": "8GiB" }, { "id": 1, "memory": "8GiB" }],
            "memory_total": "16GiB", "memory_available": "12GiB",
            "accelerator": { "kind": "kvm", "why": "tried" }, "qemu": null
        }))
        .unwrap()
    }

    fn status(coalescing: &str, lro: bool, latency: &str) -> VmStatus {
        serde_json::from_value(serde_json::json!({
            "phase": "running", "pid": 7, "accelerator": "kvm",
            "nics": [{ "mac": "02:00:00:00:00:01", "portgroup": "lan", "port": 1, "link": "up", "coalescing": coalescing, "lro": lro }],
            "latency": { "state": latency, "cpus": [] }
        }))
        .unwrap()
    }

    fn verdicts(spec: &VmSpec, status: &VmStatus, profile: Profile) -> Vec<(&'static str, Verdict)> {
        let host = host();
        let report = judged(&VmFacts { name: "db1", spec, status, host: &host }, profile);
        report
            .lines
            .iter()
            .filter(|line| line.verdict != Verdict::Ok)
            .map(|line| (line.id, line.verdict))
            .collect()
    }

    #[test]
    fn a_vm_with_everything_is_well_for_latency_and_not_for_density() {
        let spec = spec(serde_json::json!({
            "vcpus": 4, "memory": "4GiB", "memory_reservation": "full", "cpu": { "reservation": "full" },
            "latency_sensitivity": "high", "nic": [{ "portgroup": "lan" }], "disk": { "path": "/d", "bus": "virtio" }
        }));
        let granted = status("disabled", false, "granted");
        assert_eq!(verdicts(&spec, &granted, Profile::Latency), [("vm.kernel", Verdict::Unknown)]);
        let dense = verdicts(&spec, &granted, Profile::Dense);
        for id in ["vm.latency-sensitivity", "vm.coalescing", "vm.lro"] {
            assert!(dense.contains(&(id, Verdict::Warn)), "{id}: {dense:?}");
        }
        let refused = verdicts(&spec, &status("disabled", false, "refused"), Profile::Latency);
        assert!(refused.contains(&("vm.latency-sensitivity", Verdict::Bad)), "{refused:?}");
    }

    #[test]
    fn what_is_missing_is_named_line_by_line() {
        let spec = spec(serde_json::json!({
            "vcpus": 8, "memory": "12GiB", "memory_reservation": "1GiB", "cpu": { "reservation": "50%" },
            "nic": [{ "portgroup": "lan", "model": "e1000", "rings": { "rx": 64, "tx": 64 }, "queues": 8 }],
            "disk": { "path": "/d", "bus": "sata" }
        }));
        let missing = verdicts(&spec, &status("rbc:4000", true, "waiting"), Profile::Latency);
        let expected = [
            ("vm.latency-sensitivity", Verdict::Bad),
            ("vm.memory-reservation", Verdict::Bad),
            ("vm.cpu-reservation", Verdict::Warn),
            ("vm.vcpus", Verdict::Bad),
            ("vm.numa", Verdict::Warn),
            ("vm.halt", Verdict::Warn),
            ("vm.nic-model", Verdict::Bad),
            ("vm.coalescing", Verdict::Bad),
            ("vm.lro", Verdict::Warn),
            ("vm.rings", Verdict::Warn),
            ("vm.kernel", Verdict::Unknown),
            ("vm.disk", Verdict::Warn),
        ];
        assert_eq!(missing, expected);
    }
}
