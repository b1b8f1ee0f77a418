//! Features of the CPUs: virtualization, SMT, kinds of cores, mitigations.

use taut_api::check::{CpuFacts, HostFacts};
use taut_api::word::counted;

use super::line::{Item, Line, Profile, TakesEffect, Verdict};

const KVM: Item = Item {
    id: "cpu.kvm",
    what: "hardware virtualization",
    why: "Without KVM each guest instruction is translated, which takes many times as long.",
    effect: "guests run at the CPU's speed",
    takes_effect: TakesEffect::Bios,
};
const IN_VM: Item = Item {
    id: "cpu.bare-metal",
    what: "bare metal or VM",
    why: "In a VM, the hypervisor below schedules the host's pCPUs, and each exit of a guest \
           costs two.",
    effect: "a pCPU that is exclusive on this host is exclusive in fact",
    takes_effect: TakesEffect::HostBoot,
};
const DELIVERY: Item = Item {
    id: "cpu.interrupt-delivery",
    what: "interrupts posted to running vCPUs (APICv, AVIC)",
    why: "The hardware delivers an interrupt to a running vCPU without stopping it.",
    effect: "one exit less per interrupt; pass-through devices need it to be worthwhile",
    takes_effect: TakesEffect::HostBoot,
};
const SMT: Item = Item {
    id: "cpu.smt",
    what: "threads of a core (SMT)",
    why: "Two threads share the units of a core, so a neighbour slows a vCPU down in an \
           unpredictable way.",
    effect: "equal times; half the pCPUs. taut keeps the siblings of `high` VMs idle by itself",
    takes_effect: TakesEffect::Bios,
};
const HYBRID: Item = Item {
    id: "cpu.kinds",
    what: "kinds of cores",
    why: "The same work takes longer on slow cores, so times depend on the core on which a vCPU \
           runs.",
    effect: "important vCPUs run on fast cores (the VM's `[placement]`)",
    takes_effect: TakesEffect::VmRestart,
};
const MITIGATIONS: Item = Item {
    id: "cpu.mitigations",
    what: "mitigations of CPU flaws",
    why: "Some mitigations flush or fence at every exit and system call. Without them one guest \
           can read another's secrets.",
    effect: "`mitigations=off` makes each exit and system call shorter; only for hosts whose \
           guests all trust each other",
    takes_effect: TakesEffect::HostBoot,
};

const MITIGATIONS_ON: Item = MITIGATIONS.because(
    "A flaw without its mitigation lets one guest read another's secrets.",
    "guests are kept apart (newer kernel and microcode, no `mitigations=off`); some exits and system \
     calls take longer",
);

pub(super) fn lines(facts: &HostFacts, profile: Profile) -> Vec<Line> {
    let cpu = &facts.cpu;
    vec![
        kvm(cpu),
        in_vm(cpu, profile),
        delivery(cpu, profile),
        smt(cpu, profile),
        hybrid(cpu, profile),
        mitigations(cpu, profile),
    ]
}

fn kvm(cpu: &CpuFacts) -> Line {
    if cpu.kvm {
        KVM.line(Verdict::Ok, "/dev/kvm exists", "KVM")
    } else {
        KVM.line(Verdict::Bad, "no /dev/kvm", "KVM")
    }
}

fn in_vm(cpu: &CpuFacts, profile: Profile) -> Line {
    match (cpu.in_vm, profile) {
        (false, _) => IN_VM.line(Verdict::Ok, "bare metal", "bare metal"),
        (true, Profile::Latency) => IN_VM.line(Verdict::Bad, "a VM", "bare metal"),
        (true, _) => IN_VM.line(Verdict::Warn, "a VM", "bare metal"),
    }
}

fn delivery(cpu: &CpuFacts, profile: Profile) -> Line {
    let miss = if profile == Profile::Latency { Verdict::Bad } else { Verdict::Warn };
    match &cpu.interrupt_delivery {
        None => DELIVERY.unknown("no KVM module visible", "on"),
        Some(knob) if ["Y", "1"].contains(&knob.value.as_str()) => DELIVERY.line(Verdict::Ok, "on", "on"),
        Some(_) => DELIVERY.line(miss, "off", "on"),
    }
}

fn smt(cpu: &CpuFacts, profile: Profile) -> Line {
    let found = || format!("{} on {}", counted(cpu.pcpus, "pCPU"), counted(cpu.cores, "core"));
    match (cpu.smt, profile) {
        (None, _) => SMT.unknown("cannot be read", "off, or siblings kept idle"),
        (Some(true), Profile::Latency) => SMT.line(Verdict::Warn, found(), "off, or siblings kept idle"),
        (Some(false), Profile::Latency) => SMT.line(Verdict::Ok, found(), "off, or siblings kept idle"),
        (Some(_), _) => SMT.line(Verdict::Ok, found(), "any"),
    }
}

fn hybrid(cpu: &CpuFacts, profile: Profile) -> Line {
    match cpu.hybrid {
        None => HYBRID.line(Verdict::Ok, "one", "one"),
        Some((fast, slow)) => {
            let verdict = if profile == Profile::Dense { Verdict::Ok } else { Verdict::Warn };
            HYBRID.line(verdict, format!("two: {fast} fast pCPUs, {slow} slow"), "one")
        }
    }
}

fn mitigations(cpu: &CpuFacts, profile: Profile) -> Line {
    // The kernel prefixes the states of KVM with `KVM: `.
    let starts = |state: &str, word: &str| state.strip_prefix("KVM: ").unwrap_or(state).starts_with(word);
    let with = |word: &str| {
        let states = cpu.vulnerabilities.iter();
        states.filter(|(_, state)| starts(state, word)).map(|(flaw, _)| flaw.as_str()).collect::<Vec<_>>()
    };
    let (open, closed) = (with("Vulnerable"), with("Mitigation"));
    let (item, wanted) = match profile {
        Profile::Latency => (MITIGATIONS, "none needed; off only where all guests are trusted"),
        Profile::Throughput | Profile::Dense => (MITIGATIONS_ON, "on"),
    };
    if cpu.vulnerabilities.is_empty() {
        return item.unknown("cannot be read", wanted);
    }
    // Mitigations that cost time at each exit, by the kernel's names for them.
    let states = cpu.vulnerabilities.iter().filter(|(_, state)| starts(state, "Mitigation"));
    let costly = states.filter(|(_, state)| {
        ["flush", "Clear", "PTI", "IBRS", "Retpoline", "untrained", "Safe RET", "IBPB on VMEXIT"]
            .iter()
            .any(|word| state.contains(word) && !state.contains("Enhanced"))
    });
    let costly: Vec<_> = costly.map(|(flaw, _)| flaw.as_str()).collect();
    let found = match (open.as_slice(), closed.len()) {
        ([], 0) => "none needed".to_owned(),
        ([], count) if costly.is_empty() => format!("{count} on, none of them costly"),
        ([], count) => format!("{count} on; at each exit: {}", costly.join(", ")),
        (open, count) => format!("{count} on, open: {}", open.join(", ")),
    };
    let verdict = match profile {
        Profile::Latency if !costly.is_empty() => Verdict::Warn,
        Profile::Throughput | Profile::Dense if !open.is_empty() => Verdict::Warn,
        _ => Verdict::Ok,
    };
    item.line(verdict, found, wanted)
}
