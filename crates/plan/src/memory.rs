//! A guest whose memory the host does not have is not started.

use crate::{Desired, Observed, Refusal};
use taut_api::vm::Power;

/// VMs that are wanted and can never fit, with both numbers.
pub fn rule(desired: &Desired, observed: &Observed) -> Vec<Refusal> {
    let total = observed.memory_total;
    let wanted = desired.vms.iter().filter(|(_, vm)| vm.power == Power::On);
    let too_big = wanted.filter(|(_, vm)| vm.vm.memory.0 > total.0);
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
