//! What the front end of a port or VMCI device may bring: memory and descriptors.
//!
//! A front end is another process, and after a guest's escape a hostile one. What it brings, the
//! fabric uses while it serves all guests.

use taut_api::fabric::config::FrontEndRules;

use crate::facts::{Desired, MachineSize, Observed, Owner};

/// Limits a VM's front end to the VM's memory, including that of its queue pairs, and any other to
/// that of the host. Only users can trust a front end, and only one that taut did not start.
pub fn limit_front_end(desired: &Desired, observed: &Observed, owner: &Owner) -> FrontEndRules {
    match owner {
        Owner::Nic(vm, _) | Owner::Vmci(vm) => {
            // A VM whose size was changed runs with the former one until it is restarted. An early
            // version of taut did not record it.
            let wanted = desired.vms.get(vm).map(|vm| MachineSize::of(&vm.vm).all_memory());
            let memory = match observed.process(vm).map(|process| process.machine.size) {
                Some(Some(running)) => wanted.max(Some(running.all_memory())),
                Some(None) => None,
                None => wanted,
            };
            FrontEndRules { memory, trusted: false }
        }
        Owner::External(name) => FrontEndRules {
            memory: (observed.host.memory_total.0 > 0).then_some(observed.host.memory_total),
            trusted: desired.external.get(name).is_some_and(|port| port.trusted),
        },
        Owner::Netns(_) | Owner::Netdev(_) | Owner::Uplink(_) => FrontEndRules::default(),
    }
}

#[cfg(test)]
mod tests {
    use taut_api::Bytes;

    use super::*;
    use crate::facts::{Process, VmSeen};

    const GIB: Bytes = Bytes::mib(1024);

    #[test]
    fn a_vm_may_bring_the_larger_of_its_running_and_its_wanted_memory() {
        let mut desired = Desired::default();
        let vm = serde_json::json!({ "nic": [], "memory": "1GiB", "power": "on" });
        desired.vms.insert("db".parse().unwrap(), serde_json::from_value(vm).unwrap());
        let mut observed = Observed::default();
        let owner = Owner::Nic("db".parse().unwrap(), 0);
        let memory = |observed: &Observed| limit_front_end(&desired, observed, &owner).memory;
        assert_eq!(memory(&observed), Some(GIB));
        for (running, most) in [(Bytes::mib(512), GIB), (Bytes::mib(4096), Bytes::mib(4096))] {
            let mut process = Process::default();
            process.machine.size = Some(MachineSize { vcpus: 1, memory: running, ..MachineSize::default() });
            let seen = VmSeen { process: Some(process), ..VmSeen::default() };
            observed.vms.insert("db".parse().unwrap(), seen);
            assert_eq!(memory(&observed), Some(most));
        }
    }

    #[test]
    fn the_nvdimm_with_queue_pairs_is_memory_of_the_guest() {
        let mut desired = Desired::default();
        let vm = serde_json::json!({ "memory": "1GiB", "power": "on", "vmci": { "queue_pairs": "16MiB" } });
        desired.vms.insert("db".parse().unwrap(), serde_json::from_value(vm).unwrap());
        let mut observed = Observed::default();
        let owner = Owner::Vmci("db".parse().unwrap());
        let memory = |observed: &Observed| limit_front_end(&desired, observed, &owner).memory;
        assert_eq!(memory(&observed), Some(Bytes::mib(1024 + 18)));
        let mut process = Process::default();
        process.machine.size = Some(MachineSize { vcpus: 1, memory: GIB, queue_pairs: Bytes::mib(32) });
        let seen = VmSeen { process: Some(process), ..VmSeen::default() };
        observed.vms.insert("db".parse().unwrap(), seen);
        assert_eq!(memory(&observed), Some(Bytes::mib(1024 + 34)), "it was started with more");
    }

    #[test]
    fn only_a_front_end_that_taut_did_not_start_can_be_trusted() {
        let mut desired = Desired::default();
        let port = serde_json::json!({ "portgroup": "lan", "socket": "/s", "trusted": true });
        desired.external.insert("gen".parse().unwrap(), serde_json::from_value(port).unwrap());
        let mut observed = Observed::default();
        observed.host.memory_total = Bytes::mib(8192);
        let rules = limit_front_end(&desired, &observed, &Owner::External("gen".parse().unwrap()));
        assert_eq!(rules, FrontEndRules { memory: Some(Bytes::mib(8192)), trusted: true });
    }
}
