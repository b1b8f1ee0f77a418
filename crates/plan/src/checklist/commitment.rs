//! Commitments of this host to VMs: vCPUs and memory of running VMs, and the defaults of vNICs.

use taut_api::Bytes;
use taut_api::check::{Commitment, HostFacts};
use taut_api::host::{AcceleratorKind, HostInfo, HostSettings, Toggle};
use taut_api::route::Vm;
use taut_api::vm::VmSize;
use taut_api::vmci::VmciSpec;
use taut_api::word::counted;

use super::line::{Item, Line, Profile, TakesEffect, Verdict};

const VCPUS: Item = Item {
    id: "commit.vcpus",
    what: "vCPUs of running VMs",
    why: "With fewer vCPUs than pCPUs, a vCPU that wakes up finds a free pCPU, and so do the \
           host's own threads.",
    effect: "vCPUs do not wait for each other",
    takes_effect: TakesEffect::VmRestart,
};
const MEMORY: Item = Item {
    id: "commit.memory",
    what: "memory of running VMs",
    why: "If all guests use the memory that they were promised and the host does not have it, the \
           host swaps or kills one of them.",
    effect: "guest memory is neither swapped out nor lost",
    takes_effect: TakesEffect::VmRestart,
};
const ACCELERATOR: Item = Item {
    id: "commit.accelerator",
    what: "accelerator for guests on this host, found by starting one",
    why: "The existence of /dev/kvm does not prove that KVM works.",
    effect: "guests run at the CPU's speed",
    takes_effect: TakesEffect::VmRestart,
};
const COALESCING: Item = Item {
    id: "commit.coalescing",
    what: "default coalescing of vNICs (ESX: Net.CoalesceDefaultOn, Net.CoalesceScheme)",
    why: "A packet waits until its batch is complete or a timer expires.",
    effect: "packets reach guests at once; more interrupts (`taut host set \
           Net.CoalesceScheme=disabled`, or per VM)",
    takes_effect: TakesEffect::Live,
};
const LRO: Item = Item {
    id: "commit.lro",
    what: "LRO of vNICs (ESX: Net.Vmxnet3SwLRO)",
    why: "A segment waits for the next ones, and TCP acknowledges merged segments late.",
    effect: "segments reach guests as they arrive; more CPU time per byte (`taut host set \
           Net.Vmxnet3SwLRO=0`, or per VM)",
    takes_effect: TakesEffect::Live,
};

const COALESCING_ON: Item = COALESCING.because(
    "Without moderation a guest is interrupted for each packet.",
    "fewer interrupts and exits; a packet can wait for its batch (`taut host set \
     Net.CoalesceScheme=rbc`, or per VM)",
);
const LRO_ON: Item = LRO.because(
    "Each segment that is not merged passes the guest's whole network stack.",
    "less CPU time per byte; a segment can wait for the next ones (`taut host set \
     Net.Vmxnet3SwLRO=1`, or per VM)",
);

/// Sums up the resources that VMs use.
pub fn commitment(vms: &[Vm], host: &HostInfo, settings: &HostSettings) -> Commitment {
    let running: Vec<_> = vms.iter().filter(|vm| vm.status.pid.is_some()).map(size).collect();
    let accelerator = match host.accelerator.kind {
        AcceleratorKind::Kvm => "kvm",
        AcceleratorKind::Tcg => "tcg",
    };
    Commitment {
        vms: u32::try_from(running.len()).unwrap_or(u32::MAX),
        vcpus: running.iter().fold(0, |sum, size| sum.saturating_add(size.vcpus)),
        memory: Bytes(running.iter().fold(0, |sum, size| sum.saturating_add(size.memory.0))),
        host_memory: host.memory_total,
        accelerator: accelerator.to_owned(),
        coalescing: [settings.coalesce_scheme.as_str(), settings.coalesce_params.as_str()]
            .into_iter()
            .filter(|word| !word.is_empty())
            .collect::<Vec<_>>()
            .join(":"),
        lro: settings.lro == Toggle::On,
    }
}

/// Returns the size that a running VM has, with the memory of its queue pairs. Its description may
/// have another one for the next start.
fn size(vm: &Vm) -> VmSize {
    let spec = &vm.spec.vm;
    let VmSize { vcpus, memory } =
        vm.status.size.unwrap_or(VmSize { vcpus: spec.vcpus, memory: spec.memory });
    let queue_pairs = vm.status.vmci.as_ref().and_then(|vmci| vmci.queue_pairs).unwrap_or_default();
    VmSize { vcpus, memory: Bytes(memory.0.saturating_add(VmciSpec::nvdimm_of(queue_pairs).0)) }
}

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
    let found = format!("{} of {}, {}", counted(vcpus, "vCPU"), counted(vms, "VM"), counted(pcpus, "pCPU"));
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
    // A tenth of the memory stays with the host, as a rule of thumb.
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
    let (item, verdict, wanted) = match profile {
        Profile::Latency => (COALESCING, if off { Verdict::Ok } else { Verdict::Warn }, "disabled"),
        Profile::Throughput | Profile::Dense => {
            (COALESCING_ON, if off { Verdict::Warn } else { Verdict::Ok }, "rbc, adapt or static")
        }
    };
    item.line(verdict, &commitment.coalescing, wanted)
}

fn lro(commitment: &Commitment, profile: Profile) -> Line {
    let found = if commitment.lro { "on" } else { "off" };
    let (item, wanted) = if profile == Profile::Latency { (LRO, "off") } else { (LRO_ON, "on") };
    item.line(if found == wanted { Verdict::Ok } else { Verdict::Warn }, found, wanted)
}
