//! The VM's vNICs: model, coalescing, LRO, rings and queues.

use taut_api::Coalescing;
use taut_api::vm::{NicModel, NicStatus, VmSpec};

use super::facts::VmFacts;
use crate::checklist::line::{Item, Line, Profile, TakesEffect, Verdict};

const MODEL: Item = Item {
    id: "vm.nic-model",
    what: "vNIC models (ESX: ethernetX.virtualDev)",
    why: "Only virtio vNICs use the switch's own rings. QEMU's emulated NICs exit at every \
           register access.",
    effect: "more packets for less CPU time, and coalescing and LRO can be set; the guest needs a \
           virtio driver",
    takes_effect: TakesEffect::VmRestart,
};
const COALESCING: Item = Item {
    id: "vm.coalescing",
    what: "coalescing of vNICs (ESX: ethernetX.coalescingScheme)",
    why: "A packet waits until its batch is complete or a timer expires.",
    effect: "packets reach the guest at once; more interrupts (`taut vm set`, or `high`)",
    takes_effect: TakesEffect::Live,
};
const COALESCING_ON: Item = COALESCING.because(
    "Without coalescing the guest is interrupted for each packet.",
    "fewer interrupts and exits; a packet can wait for its batch (`taut vm set`)",
);
const LRO: Item = Item {
    id: "vm.lro",
    what: "LRO of vNICs (ESX: disable_lro in the guest)",
    why: "A segment waits for the next ones, and TCP acknowledges merged segments late.",
    effect: "segments reach the guest as they arrive; more CPU time per byte",
    takes_effect: TakesEffect::Live,
};
const LRO_ON: Item = LRO.because(
    "Each segment that is not merged passes the guest's whole network stack.",
    "less CPU time per byte; a segment can wait for the next ones",
);
const RINGS: Item = Item {
    id: "vm.rings",
    what: "size of receive rings",
    why: "A full ring drops packets, and TCP takes that for congestion.",
    effect: "bursts fit into the ring; costs a little memory",
    takes_effect: TakesEffect::VmRestart,
};
const QUEUES: Item = Item {
    id: "vm.queues",
    what: "queue pairs of vNICs",
    why: "One vCPU serves each queue pair. Pairs beyond the number of vCPUs are never used.",
    effect: "several vCPUs receive at the same time",
    takes_effect: TakesEffect::VmRestart,
};

/// The lines about vNICs; none for a VM without a vNIC.
pub(super) fn lines(facts: &VmFacts<'_>, profile: Profile) -> Vec<Line> {
    if facts.spec.nics.is_empty() {
        return Vec::new();
    }
    vec![
        model(facts.spec),
        coalescing(facts, profile),
        lro(facts, profile),
        rings(facts.spec, profile),
        queues(facts.spec, profile),
    ]
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

/// vNICs with rings of the switch, and their present coalescing. vNICs that QEMU emulates have
/// neither.
fn own_rings<'a>(facts: &VmFacts<'a>) -> Vec<(&'a NicStatus, Coalescing)> {
    facts.status.nics.iter().filter_map(|nic| Some((nic, nic.coalescing?))).collect()
}

fn coalescing(facts: &VmFacts<'_>, profile: Profile) -> Line {
    let (item, wanted) = match profile {
        Profile::Latency => (COALESCING, "disabled"),
        Profile::Throughput | Profile::Dense => (COALESCING_ON, "rbc, adapt or static"),
    };
    let nics = own_rings(facts);
    if nics.is_empty() {
        return item.unknown("no vNIC with coalescing", wanted);
    }
    let off = |(_, scheme): &(&NicStatus, Coalescing)| *scheme == Coalescing::Disabled;
    let found: Vec<_> = nics.iter().map(|(_, scheme)| scheme.to_string()).collect();
    let verdict = match profile {
        Profile::Latency if !nics.iter().all(off) => Verdict::Bad,
        Profile::Throughput | Profile::Dense if nics.iter().any(off) => Verdict::Warn,
        _ => Verdict::Ok,
    };
    item.line(verdict, found.join(", "), wanted)
}

fn lro(facts: &VmFacts<'_>, profile: Profile) -> Line {
    let (item, wanted) = if profile == Profile::Latency { (LRO, "off") } else { (LRO_ON, "on") };
    let nics = own_rings(facts);
    if nics.is_empty() {
        return item.unknown("no vNIC with LRO", wanted);
    }
    let states: Vec<_> = nics.iter().map(|(nic, _)| if nic.lro { "on" } else { "off" }).collect();
    let verdict = if states.iter().all(|state| *state == wanted) { Verdict::Ok } else { Verdict::Warn };
    item.line(verdict, states.join(", "), wanted)
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
    let wanted = if profile == Profile::Throughput { "one per vCPU" } else { "at most one per vCPU" };
    QUEUES.line(verdict, found.join(", "), wanted)
}
