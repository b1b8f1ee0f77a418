//! The wanted state of the host: the share of each VM that has a process, VMs that are being
//! started, and network cards.

use std::collections::{BTreeMap, BTreeSet};

use taut_api::Name;
use taut_api::enforcement::{CpuShare, HostPlan, VmShare};
use taut_api::fabric::config::WorkerMode;

use super::decided::Decided;
use super::halt::poll_for_halted_vcpus;
use super::migration::move_memory_to_vcpus;
use super::passthrough::place_interrupts;
use crate::facts::{Desired, Observed, Process};

/// States what every VM that has a process gets. A VM that is no longer wanted gets nothing beyond
/// its entry. VMs that are being started are in `starting`.
pub fn share_host(
    desired: &Desired,
    observed: &Observed,
    decided: &Decided,
    starting: BTreeSet<Name>,
) -> HostPlan {
    let moves = move_memory_to_vcpus(desired, observed, &decided.placement);
    let share = |name: &Name, process: &Process| VmShare {
        pid: process.pid,
        cpus: share_pcpus(decided, name),
        group: decided.groups.get(name).cloned(),
        // Limits protect the host, so `host restore` keeps them until the process has ended.
        limits: process.limits,
        memory: moves.get(name).cloned().unwrap_or_default(),
        // A process that still takes its memory would keep threads of other VMs waiting.
        priority: process.ready && decided.placement.granted.contains_key(name),
        interrupts: place_interrupts(desired, &observed.host, &decided.placement, name),
    };
    let running = observed.vms.iter().filter_map(|(name, seen)| Some((name, seen.process.as_ref()?)));
    let vms: BTreeMap<Name, VmShare> =
        running.map(|(name, process)| (name.clone(), share(name, process))).collect();
    // A worker that polls with real-time priority would leave nothing to other threads.
    let sleeps = desired.workers.mode != WorkerMode::Polling;
    let fabric = observed.fabric.pid.filter(|_| sleeps && vms.values().any(|vm| vm.priority));
    // Cards are part of the network, so `host restore` keeps their settings.
    HostPlan {
        vms,
        starting,
        fabric,
        poll_ns: poll_for_halted_vcpus(desired, observed),
        cards: desired.card_settings(),
    }
}

/// The pCPUs of the VM's vCPUs.
fn share_pcpus(decided: &Decided, name: &Name) -> CpuShare {
    if let Some(grant) = decided.placement.granted.get(name) {
        return CpuShare::Exclusive { cpus: grant.cpus.clone(), idle: grant.idle.clone() };
    }
    decided.shared_cpus.get(name).map_or(CpuShare::Any, |cpus| CpuShare::Bound(cpus.clone()))
}

#[cfg(test)]
mod tests {
    use taut_api::Bytes;
    use taut_api::enforcement::{HostReport, ProcessLimits};
    use taut_api::host::Cpu;
    use taut_api::pnic::{Offload, PnicSettings};
    use taut_api::uplink::{UplinkBackend, UplinkSpec};

    use super::*;
    use crate::facts::{FabricSeen, HostSeen, VmSeen};

    /// A host with four pCPUs on which these VMs run; each process has the pid of its place in the
    /// list.
    fn world(vms: &[(&str, serde_json::Value)]) -> (Desired, Observed) {
        let cpu = |id| Cpu { id, package: 0, core: id, node: 0, llc: 0 };
        let host = HostSeen {
            memory_total: Bytes::mib(4096),
            cpus: (0..4).map(cpu).collect(),
            ..HostSeen::default()
        };
        let fabric = FabricSeen { pid: Some(99), ..FabricSeen::default() };
        let mut observed = Observed { host, fabric, ..Observed::default() };
        let mut desired = Desired::default();
        for (pid, (name, json)) in vms.iter().enumerate() {
            let name: Name = name.parse().unwrap();
            let process = Process { pid: pid as u32, ready: true, ..Process::default() };
            let seen = VmSeen { process: Some(process), ..VmSeen::default() };
            observed.vms.insert(name.clone(), seen);
            let mut all = serde_json::json!({ "power": "on", "memory": "64MiB" });
            all.as_object_mut().unwrap().extend(json.as_object().unwrap().clone());
            desired.vms.insert(name, serde_json::from_value(all).unwrap());
        }
        (desired, observed)
    }

    fn shared(desired: &Desired, observed: &Observed) -> HostPlan {
        let decided = Decided::new(desired, observed, &HostReport::default());
        share_host(desired, observed, &decided, BTreeSet::new())
    }

    fn three_vms() -> (Desired, Observed) {
        let high = serde_json::json!({
            "memory_reservation": "full", "cpu": { "reservation": "full" },
            "latency_sensitivity": "high", "passthrough": [{ "address": "3b:00.0" }],
        });
        let bound = serde_json::json!({ "placement": { "cpus": "1-2" } });
        world(&[("bound", bound), ("high", high), ("plain", serde_json::json!({}))])
    }

    #[test]
    fn each_running_vm_has_its_share() {
        let (mut desired, observed) = three_vms();
        let plan = shared(&desired, &observed);
        let share = |name: &str| &plan.vms[&name.parse::<Name>().unwrap()];
        assert_eq!(share("high").cpus, CpuShare::Exclusive { cpus: vec![1], idle: vec![] });
        assert_eq!(share("high").interrupts, [0, 2, 3].into(), "its device interrupts other pCPUs");
        assert!(share("high").priority && !share("bound").priority && !share("plain").priority);
        assert_eq!((&share("bound").cpus, share("bound").pid), (&CpuShare::Bound([2].into()), 0));
        assert_eq!(*share("plain"), VmShare { pid: 2, ..VmShare::default() });
        assert_eq!(plan.fabric, Some(99));
        desired.workers.mode = WorkerMode::Polling;
        assert_eq!(shared(&desired, &observed).fabric, None, "a polling worker gets no priority");
    }

    #[test]
    fn a_process_that_is_still_starting_has_no_priority() {
        let (desired, mut observed) = three_vms();
        let high: Name = "high".parse().unwrap();
        observed.vms.get_mut(&high).unwrap().process.as_mut().unwrap().ready = false;
        let plan = shared(&desired, &observed);
        assert!(matches!(plan.vms[&high].cpus, CpuShare::Exclusive { .. }));
        assert_eq!((plan.vms[&high].priority, plan.fabric), (false, None));
    }

    #[test]
    fn a_process_has_its_limits_whatever_becomes_of_its_vm() {
        let (mut desired, mut observed) = world(&[("m1", serde_json::json!({}))]);
        let name: Name = "m1".parse().unwrap();
        let process = observed.vms.get_mut(&name).unwrap().process.as_mut().unwrap();
        let limits = Some(ProcessLimits { memory: Bytes::mib(325), huge: Bytes(0), processes: 81 });
        process.limits = limits;
        assert_eq!(shared(&desired, &observed).vms[&name].limits, limits);
        desired.vms.clear();
        observed.restored = true;
        assert_eq!(shared(&desired, &observed).vms[&name].limits, limits);
    }

    #[test]
    fn a_vm_that_is_not_wanted_and_every_vm_of_a_restored_host_get_nothing() {
        let (mut desired, mut observed) = three_vms();
        desired.vms.remove(&"high".parse::<Name>().unwrap());
        let plan = shared(&desired, &observed);
        let high: Name = "high".parse().unwrap();
        assert_eq!(plan.vms[&high], VmShare { pid: 1, ..VmShare::default() });
        assert_eq!(plan.fabric, None, "no VM owns a pCPU");
        let (mut desired, _) = three_vms();
        let ring = serde_json::json!({ "rings": { "rx": 512 } });
        desired.pnics.insert("eth1".parse().unwrap(), serde_json::from_value(ring).unwrap());
        let settings = desired.pnics.clone();
        desired.pnics.insert("eth2".parse().unwrap(), PnicSettings::default());
        observed.restored = true;
        let plan = shared(&desired, &observed);
        assert_eq!(plan.cards, settings, "cards are part of the network, those without settings are not");
        for (pid, share) in plan.vms.values().enumerate() {
            assert_eq!(*share, VmShare { pid: pid as u32, ..VmShare::default() });
        }
        assert_eq!((plan.vms.len(), plan.fabric, plan.poll_ns), (3, None, None));
    }

    #[test]
    fn an_uplink_by_xdp_merges_no_segments_unless_a_user_wants_it() {
        let uplink = |backend| UplinkSpec { backend, ..UplinkSpec::new("sw".parse().unwrap()) };
        let mut desired = Desired::default();
        for (name, backend) in
            [("eth1", UplinkBackend::Xdp), ("eth2", UplinkBackend::Packet), ("eth3", UplinkBackend::Xdp)]
        {
            desired.uplinks.insert(name.parse().unwrap(), uplink(backend));
        }
        let settings = serde_json::json!({ "rings": { "rx": 512 }, "offloads": { "lro": true } });
        desired.pnics.insert("eth3".parse().unwrap(), serde_json::from_value(settings).unwrap());
        let cards = shared(&desired, &Observed::default()).cards;
        let lro = |name: &str| Some(cards.get(&name.parse::<Name>().unwrap())?.offloads[&Offload::Lro]);
        assert_eq!([lro("eth1"), lro("eth2"), lro("eth3")], [Some(false), None, Some(true)]);
        assert_eq!(cards[&"eth3".parse::<Name>().unwrap()].rings.rx, Some(512));
    }
}
