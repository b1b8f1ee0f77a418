//! Memory of a VM as a whole: whether the host has enough, and whether it is locked (LS-5).

use taut_api::vm::VmKind;

use crate::facts::{Desired, Explanation, HostSeen, Process, Refusal, Row};

/// Refuses to start VMs that have more memory than the host.
pub fn refuse_oversized_vms(desired: &Desired, host: &HostSeen) -> Vec<Refusal> {
    let total = host.memory_total;
    let too_big = desired.vms_on().filter(|(_, vm)| vm.vm.memory.0 > total.0);
    too_big
        .map(|(name, vm)| Refusal {
            vm: name.clone(),
            reason: format!(
                "its memory of {} is more than the whole host has ({} MiB)",
                vm.vm.memory,
                total.as_mib()
            ),
        })
        .collect()
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
