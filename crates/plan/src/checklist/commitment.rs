//! What VMs were promised of this host (S3 "VM settings": over-commitment; "virtual NIC settings": the host's defaults).

use taut_api::check::{Commitment, HostFacts};

use super::line::{Item, Line, Profile, TakesEffect, Verdict};

const VCPUS: Item = Item {
    id: "commit.vcpus",
    what: "vCPUs of running VMs",
    why: "With fewer vCPUs than pCPUs a vCPU that wakes up finds a free pCPU, and the host's own threads have one as well.",
    effect: "vCPUs do not wait for each other",
    takes_effect: TakesEffect::VmRestart,
};
const MEMORY: Item = Item {
    id: "commit.memory",
    what: "memory of running VMs",
    why: "When all guests use what they were promised and it is not there, the host swaps, or kills one of them.",
    effect: "guests' memory stays in memory",
    takes_effect: TakesEffect::VmRestart,
};
const ACCELERATOR: Item = Item {
    id: "commit.accelerator",
    what: "how VMs run here, tried by starting one",
    why: "A device file does not mean that it works.",
    effect: "guests run at the CPU's speed",
    takes_effect: TakesEffect::VmRestart,
};
const COALESCING: Item = Item {
    id: "commit.coalescing",
    what: "vNICs' default moderation (ESX: Net.CoalesceDefaultOn, Net.CoalesceScheme)",
    why: "A batch of packets waits until it is complete, or its time is over.",
    effect: "packets reach guests at once; more interrupts (`taut host set Net.CoalesceScheme=disabled`, or per VM)",
    takes_effect: TakesEffect::Live,
};
const LRO: Item = Item {
    id: "commit.lro",
    what: "vNICs' LRO (ESX: Net.Vmxnet3SwLRO)",
    why: "Segments wait for their successors, and TCP acknowledges the merged ones late.",
    effect: "segments reach guests as they come; more CPU time per byte (`taut host set Net.Vmxnet3SwLRO=0`, or per VM)",
    takes_effect: TakesEffect::Live,
};

pub(super) fn lines(facts: &HostFacts, profile: Profile) -> Vec<Line> {
    let Some(commitment) = &facts.commitment else { return Vec::new() };
    vec![
        vcpus(commitment, facts.cpu.pcpus, profile),
        memory(commitment, profile),
        accelerator(commitment),
        coalescing(commitment, profile),
        lro(commitment, profile),
    ]
}

fn vcpus(commitment: &Commitment, pcpus: u32, profile: Profile) -> Line {
    let Commitment { vms, vcpus, .. } = *commitment;
    let found = format!("{vcpus} of {vms} VMs on {pcpus} pCPUs");
    let most = match profile {
        Profile::Latency => pcpus.saturating_sub(1),
        Profile::Throughput => pcpus,
        Profile::Dense => pcpus.saturating_mul(8),
    };
    let miss = if profile == Profile::Latency { Verdict::Bad } else { Verdict::Warn };
    VCPUS.line(if vcpus <= most { Verdict::Ok } else { miss }, found, format!("at most {most}"))
}

fn memory(commitment: &Commitment, profile: Profile) -> Line {
    let (memory, host) = (commitment.memory, commitment.host_memory);
    let found = format!("{} of {} MiB", memory.as_mib(), host.as_mib());
    // What the host needs for itself: a tenth, as a round number.
    let most = host.as_mib() / 10 * 9;
    let miss = if profile == Profile::Dense { Verdict::Warn } else { Verdict::Bad };
    let verdict = if memory.as_mib() <= most { Verdict::Ok } else { miss };
    MEMORY.line(verdict, found, format!("at most {most} MiB"))
}

fn accelerator(commitment: &Commitment) -> Line {
    let verdict = if commitment.accelerator == "kvm" { Verdict::Ok } else { Verdict::Bad };
    ACCELERATOR.line(verdict, &commitment.accelerator, "kvm")
}

fn coalescing(commitment: &Commitment, profile: Profile) -> Line {
    let off = commitment.coalescing == "disabled";
    let (verdict, wanted) = match profile {
        Profile::Latency => (if off { Verdict::Ok } else { Verdict::Warn }, "disabled"),
        Profile::Throughput | Profile::Dense => {
            (if off { Verdict::Warn } else { Verdict::Ok }, "rbc, adapt or static")
        }
    };
    COALESCING.line(verdict, &commitment.coalescing, wanted)
}

fn lro(commitment: &Commitment, profile: Profile) -> Line {
    let found = if commitment.lro { "on" } else { "off" };
    let wanted = if profile == Profile::Latency { "off" } else { "on" };
    LRO.line(if found == wanted { Verdict::Ok } else { Verdict::Warn }, found, wanted)
}
