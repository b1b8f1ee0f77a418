//! pCPUs for the vCPUs of VMs that own none (ESX: `sched.cpu.affinity`, `numa.nodeAffinity`).
//!
//! Such a VM shares the pCPUs that its `[placement]` names with all other threads, except those
//! that other VMs own.

use std::collections::{BTreeMap, BTreeSet};

use taut_api::Name;
use taut_api::enforcement::HostReport;
use taut_api::placement::Numbers;
use taut_api::vm::VmDesired;

use super::problem::Placement;
use crate::facts::{Desired, Explanation, Observed};

/// The pCPUs that the vCPUs of each VM are bound to. A VM that may run anywhere, or for which no
/// pCPU is left, has no entry.
pub fn bind_shared_vcpus(
    desired: &Desired,
    observed: &Observed,
    placement: &Placement,
) -> BTreeMap<Name, BTreeSet<u32>> {
    if observed.restored {
        return BTreeMap::new();
    }
    let exclusive = placement.exclusive();
    let shared = desired.vms_on().filter(|(name, _)| !placement.granted.contains_key(*name));
    let bound = shared.filter_map(|(name, vm)| {
        let allowed = observed.host.allowed_pcpus(&vm.vm.placement)?;
        let left: BTreeSet<u32> = allowed.difference(&exclusive).copied().collect();
        (!left.is_empty()).then(|| (name.clone(), left))
    });
    bound.collect()
}

/// Explains where the vCPUs of a VM without exclusive pCPUs run, or would run if it were on.
pub(crate) fn explain_affinity(
    observed: &Observed,
    report: &HostReport,
    placement: &Placement,
    name: &Name,
    vm: &VmDesired,
) -> Explanation {
    let mut told = Explanation::default();
    let Some(allowed) = observed.host.allowed_pcpus(&vm.vm.placement) else { return told };
    if placement.granted.contains_key(name) {
        return told;
    }
    if observed.restored {
        told.lack(
            "its vCPUs were let go by `taut host restore`: the next change of any setting binds them again",
        );
        return told;
    }
    let wanted = vm.vm.placement.allowed();
    if allowed.is_empty() {
        told.lack(format!(
            "{wanted}: none of them is on-line here, so its vCPUs run anywhere; hint: `taut vm set \
             {name} --cpu-affinity any --numa-nodes any`, or name some of {}",
            Numbers(observed.host.cpus.iter().map(|cpu| cpu.id).collect())
        ));
        return told;
    }
    let exclusive = placement.exclusive();
    let (taken, left): (BTreeSet<u32>, BTreeSet<u32>) =
        allowed.iter().partition(|cpu| exclusive.contains(cpu));
    let owners = placement.owners_of(&taken);
    if left.is_empty() {
        told.lack(format!(
            "{wanted}: other VMs own all of them ({owners}), so its vCPUs run anywhere else; hint: \
             name other pCPUs, or set one of these VMs to normal"
        ));
        return told;
    }
    let without = if taken.is_empty() {
        String::new()
    } else {
        format!("; without {}, which other VMs own ({owners})", Numbers(taken))
    };
    told.decide(
        format!("its vCPUs run on pCPUs {} only", Numbers(left)),
        format!("[placement] allows {wanted} (sched.cpu.affinity, numa.nodeAffinity){without}"),
    );
    told.missing.extend(report.vms.get(name).and_then(|vm| vm.unbound.clone()));
    told
}

#[cfg(test)]
mod tests {
    use taut_api::Bytes;
    use taut_api::enforcement::VmReport;
    use taut_api::host::Cpu;
    use taut_api::vm::Power;

    use super::*;
    use crate::facts::HostSeen;
    use crate::placement::exclusive::place_exclusive_vcpus;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    /// Two nodes of four pCPUs.
    fn host() -> Observed {
        let cpu = |id: u32| Cpu { id, package: 0, core: id, node: id / 4, llc: 0 };
        let host = HostSeen {
            memory_total: Bytes::mib(4096),
            cpus: (0..8).map(cpu).collect(),
            ..HostSeen::default()
        };
        Observed { host, ..Observed::default() }
    }

    fn desired(vms: &[(&str, serde_json::Value)]) -> Desired {
        let vm = |(text, more): &(&str, serde_json::Value)| {
            let mut json = serde_json::json!({ "power": "on", "memory": "64MiB" });
            json.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            (name(text), serde_json::from_value(json).unwrap())
        };
        Desired { vms: vms.iter().map(vm).collect(), ..Desired::default() }
    }

    /// A VM that owns the pCPUs that its `[placement]` allows.
    fn high(cpus: &str, vcpus: u32) -> serde_json::Value {
        serde_json::json!({
            "vcpus": vcpus, "memory_reservation": "full", "cpu": { "reservation": "full" },
            "latency_sensitivity": "high", "placement": { "cpus": cpus },
        })
    }

    fn bound(desired: &Desired, observed: &Observed) -> BTreeMap<Name, BTreeSet<u32>> {
        let placement = place_exclusive_vcpus(desired, observed, &HostReport::default());
        bind_shared_vcpus(desired, observed, &placement)
    }

    fn told(desired: &Desired, observed: &Observed, report: &HostReport, vm: &str) -> Explanation {
        let placement = place_exclusive_vcpus(desired, observed, report);
        explain_affinity(observed, report, &placement, &name(vm), &desired.vms[&name(vm)])
    }

    #[test]
    fn vcpus_share_allowed_pcpus_that_no_vm_owns() {
        let affine = serde_json::json!({ "placement": { "cpus": "2,4-7", "nodes": "1" } });
        let plain = serde_json::json!({});
        let mut desired = desired(&[("a", affine), ("b", plain), ("high", high("5", 1))]);
        let observed = host();
        assert_eq!(
            bound(&desired, &observed),
            [(name("a"), [4, 6, 7].into())].into(),
            "neither 2, of the other node, nor 5"
        );
        let nothing = HostReport::default();
        let status = told(&desired, &observed, &nothing, "a");
        assert_eq!(status.missing, Vec::<String>::new());
        assert_eq!(status.decisions[0].decision, "its vCPUs run on pCPUs 4,6-7 only");
        assert!(status.decisions[0].rule.ends_with("without 5, which other VMs own (high)"), "{status:?}");
        for other in ["b", "high"] {
            assert_eq!(told(&desired, &observed, &nothing, other), Explanation::default());
        }
        // The latency-sensitive VM gives its pCPU back.
        desired.vms.get_mut(&name("high")).unwrap().power = Power::Off;
        assert_eq!(bound(&desired, &observed)[&name("a")], [4, 5, 6, 7].into());
        let unbound = VmReport { unbound: Some("why not".to_owned()), ..VmReport::default() };
        let report = HostReport { vms: [(name("a"), unbound)].into(), ..HostReport::default() };
        assert_eq!(told(&desired, &observed, &report, "a").missing, ["why not"]);
        let restored = Observed { restored: true, ..observed };
        assert!(bound(&desired, &restored).is_empty());
        assert!(told(&desired, &restored, &nothing, "a").missing[0].contains("taut host restore"));
    }

    #[test]
    fn a_vm_without_any_allowed_pcpu_is_told_why() {
        let of = |cpus: &str| serde_json::json!({ "placement": { "cpus": cpus } });
        let desired = desired(&[("a", of("5-6")), ("b", of("64")), ("high", high("5-6", 2))]);
        let observed = host();
        assert!(bound(&desired, &observed).is_empty());
        let reason = |vm| told(&desired, &observed, &HostReport::default(), vm).missing.join("; ");
        assert!(reason("a").starts_with("pCPUs 5-6: other VMs own all of them (high)"), "{}", reason("a"));
        assert!(
            reason("b").contains("none of them is on-line here") && reason("b").ends_with("some of 0-7"),
            "{}",
            reason("b")
        );
    }
}
