//! PCI devices of the host that belong to VMs (LS-8): the pCPUs that serve their interrupts.

use std::collections::BTreeSet;

use taut_api::Name;
use taut_api::host::Cpu;
use taut_api::vm::VmSpec;

use crate::facts::{Desired, Explanation, HostSeen, Row};
use crate::placement::problem::Placement;

/// The pCPUs that serve the interrupts of a VM's devices. Empty for a VM without devices or without
/// exclusive pCPUs.
pub(crate) fn place_interrupts(
    desired: &Desired,
    host: &HostSeen,
    placement: &Placement,
    name: &Name,
) -> BTreeSet<u32> {
    let has_devices = desired.vms.get(name).is_some_and(|vm| !vm.vm.passthrough.is_empty());
    match placement.granted.get(name) {
        Some(grant) if has_devices => nearest_shared_pcpus(&host.cpus, &placement.exclusive(), &grant.cpus),
        _ => BTreeSet::new(),
    }
}

/// pCPUs that no VM owns, nearest to the pCPUs in `own`: those of the same cache, else those of the
/// same node, else all.
fn nearest_shared_pcpus(cpus: &[Cpu], exclusive: &BTreeSet<u32>, own: &[u32]) -> BTreeSet<u32> {
    let own: Vec<&Cpu> = cpus.iter().filter(|cpu| own.contains(&cpu.id)).collect();
    let shared = |near: &dyn Fn(&Cpu) -> bool| -> BTreeSet<u32> {
        cpus.iter().filter(|cpu| !exclusive.contains(&cpu.id) && near(cpu)).map(|cpu| cpu.id).collect()
    };
    let cache = shared(&|cpu| own.iter().any(|own| own.llc == cpu.llc));
    if !cache.is_empty() {
        return cache;
    }
    let node = shared(&|cpu| own.iter().any(|own| own.node == cpu.node));
    if node.is_empty() { shared(&|_| true) } else { node }
}

/// Explains each device of a VM.
pub(crate) fn explain_devices(spec: &VmSpec) -> Explanation {
    let mut told = Explanation::default();
    for device in &spec.passthrough {
        told.decide(
            format!("{} is handed to it by vfio-pci while it runs", device.address),
            Row::PassThrough.because(
                "no vSwitch sees its frames, so it has no shaping, no counters and no live migration; \
                 its interrupts arrive near the VM's pCPUs",
            ),
        );
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_arrive_near_the_vms_pcpus_and_never_on_exclusive_ones() {
        let cpu = |id, node, llc| Cpu { id, package: node, core: id, node, llc };
        let cpus: Vec<Cpu> = (0..8).map(|id| cpu(id, id / 4, id / 2)).collect();
        let near = |exclusive: &[u32], own: &[u32]| -> Vec<u32> {
            let exclusive = exclusive.iter().copied().collect();
            nearest_shared_pcpus(&cpus, &exclusive, own).into_iter().collect()
        };
        assert_eq!(near(&[5], &[5]), [4], "the same cache");
        assert_eq!(near(&[4, 5], &[4, 5]), [6, 7], "the same node");
        assert_eq!(near(&[4, 5, 6, 7], &[4, 5]), [0, 1, 2, 3], "any pCPU of the host");
    }
}
