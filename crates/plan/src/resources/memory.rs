//! Memory of a VM as a whole: whether the host has enough, and whether it is locked (LS-5).

use taut_api::vm::{VmDesired, VmKind, VmSpec};
use taut_api::{Bytes, Name};

use crate::facts::{Desired, Explanation, HostSeen, MachineSize, Process, Refusal, Row};

/// Refuses to start VMs that have more memory than the host. Admission refuses them first; this
/// covers a host that has shrunk since.
pub fn refuse_oversized_vms(desired: &Desired, host: &HostSeen) -> Vec<Refusal> {
    let refusal =
        |(name, vm): (&Name, &VmDesired)| Some(Refusal { vm: name.clone(), reason: oversize(&vm.vm, host)? });
    desired.vms_on().filter_map(refusal).collect()
}

/// Most memory that a VM on this host can have: all of the host's, in whole steps of
/// [`VmSpec::MEMORY_STEP`].
pub(crate) fn most_memory(host: &HostSeen) -> Bytes {
    let total = host.memory_total.0;
    Bytes(total - total % VmSpec::MEMORY_STEP.0)
}

/// Returns why the host cannot run a VM of this size, whatever else runs there.
pub(crate) fn oversize(spec: &VmSpec, host: &HostSeen) -> Option<String> {
    let (size, most) = (MachineSize::of(spec), most_memory(host));
    let with = match size.nvdimm() {
        Bytes(0) => String::new(),
        nvdimm => format!(", and {nvdimm} for queue pairs,"),
    };
    (size.all_memory() > most)
        .then(|| format!("its memory of {}{with} is more than the whole host has: {most}", spec.memory))
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
