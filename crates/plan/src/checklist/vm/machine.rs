//! The virtual machine: accelerator, halting, kernel and disk controller.

use taut_api::host::AcceleratorKind;
use taut_api::machine::VmAccelerator;
use taut_api::vm::{DiskBus, VmKind, VmSpec};

use super::facts::{VmFacts, is_high};
use crate::checklist::line::{Item, Line, Profile, TakesEffect, Verdict};

const ACCELERATOR: Item = Item {
    id: "vm.accelerator",
    what: "accelerator",
    why: "Emulation is many times slower than KVM.",
    effect: "vCPUs run at the CPU's speed",
    takes_effect: TakesEffect::VmRestart,
};
const HALT: Item = Item {
    id: "vm.halt",
    what: "halting (ESX: monitor_control.halt_desched)",
    why: "A vCPU that halts in the guest is not descheduled, so no scheduler delays its wake-up.",
    effect: "wake-ups take a few microseconds; the pCPU looks busy all the time. Comes with \
           `high` and exclusive pCPUs, and stays until the VM's next start when it is set back to \
           `normal`",
    takes_effect: TakesEffect::VmRestart,
};
const KERNEL: Item = Item {
    id: "vm.kernel",
    what: "kernel image",
    why: "Old kernels read slow clocks, tick when idle and have older drivers.",
    effect: "`taut-guest check` in the guest shows the kernel that runs",
    takes_effect: TakesEffect::VmRestart,
};
const DISK: Item = Item {
    id: "vm.disk",
    what: "disk controller",
    why: "Emulated controllers exit several times per request, in a thread that also serves other \
           devices.",
    effect: "fewer exits; the guest needs the driver",
    takes_effect: TakesEffect::VmRestart,
};

pub(super) fn accelerator(facts: &VmFacts<'_>) -> Line {
    let expected = match (facts.spec.kind, facts.host.accelerator.kind) {
        (VmKind::Micro, _) => VmAccelerator::Native,
        (VmKind::Qemu, AcceleratorKind::Kvm) => VmAccelerator::Kvm,
        (VmKind::Qemu, AcceleratorKind::Tcg) => VmAccelerator::Tcg,
    };
    let found = facts.status.accelerator.unwrap_or(expected);
    let verdict = if found == VmAccelerator::Tcg { Verdict::Bad } else { Verdict::Ok };
    ACCELERATOR.line(verdict, found.to_string(), "kvm")
}

pub(super) fn halt(facts: &VmFacts<'_>, profile: Profile) -> Line {
    let found =
        if is_high(facts.spec) { "in the guest, once pCPUs are exclusive" } else { "through the host" };
    match profile {
        Profile::Latency if !is_high(facts.spec) => HALT.line(Verdict::Warn, found, "in the guest"),
        Profile::Latency => HALT.line(Verdict::Ok, found, "in the guest"),
        Profile::Throughput | Profile::Dense => HALT.line(Verdict::Ok, found, "any"),
    }
}

pub(super) fn kernel(spec: &VmSpec) -> Line {
    let wanted = "6.1 or newer";
    match (&spec.boot, spec.kind) {
        (_, VmKind::Micro) => KERNEL.line(Verdict::Ok, "none: a microguest", wanted),
        (Some(boot), _) => KERNEL.unknown(&boot.kernel, wanted),
        (None, _) => KERNEL.unknown("on its disk", wanted),
    }
}

pub(super) fn disk(spec: &VmSpec) -> Line {
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
