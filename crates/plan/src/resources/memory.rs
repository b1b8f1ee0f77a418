//! Memory of a VM as a whole: whether the host has enough, and whether it is locked (LS-5).

use taut_api::Name;
use taut_api::vm::{VmDesired, VmKind, VmSpec};

use crate::facts::{Desired, Explanation, HostSeen, Process, Refusal, Row};

/// Refuses to start VMs that have more memory than the host. Admission refuses them first; this
/// covers a host that has shrunk since.
pub fn refuse_oversized_vms(desired: &Desired, host: &HostSeen) -> Vec<Refusal> {
    let refusal =
        |(name, vm): (&Name, &VmDesired)| Some(Refusal { vm: name.clone(), reason: oversize(&vm.vm, host)? });
    desired.vms_on().filter_map(refusal).collect()
}

/// Returns why the host cannot run a VM of this size, whatever else runs there.
pub(crate) fn oversize(spec: &VmSpec, host: &HostSeen) -> Option<String> {
    let total = host.memory_total;
    (spec.memory.0 > total.0).then(|| {
        format!("its memory of {} is more than the whole host has ({} MiB)", spec.memory, total.as_mib())
    })
}

/// Explains that the memory of a latency-sensitive VM is allocated and locked when it starts.
pub(crate) fn explain_locked_memory(process: Option<&Process>) -> Explanation {
    let later = process.is_some_and(|process| process.kind == VmKind::Qemu && !process.locked);
    let when = if later { " from its next start on: it was started without this" } else { "" };
    let mut told = Explanation::default();
    told.decide_from(
        later,
        format!("its memory is allocated and locked{when}"),
        Row::LocalMemory.because("all of it is reserved"),
    );
    told
}
