//! Where the vCPUs of VMs may run that own no pCPUs: ESX's `sched.cpu.affinity` and `numa.nodeAffinity`.
//!
//! Such a VM shares the pCPUs that its `[placement]` names with everybody else, except those that others own.

use std::collections::{BTreeMap, BTreeSet};

use taut_api::Name;
use taut_api::latency::Decision;
use taut_api::placement::Numbers;
use taut_api::shares::ResourceStatus;
use taut_api::vm::{Power, VmDesired, VmSpec};

use crate::placement::Placement;
use crate::{Decided, Desired, Observed};

/// pCPUs that each VM's vCPUs are bound to; a VM that may run anywhere, or has nothing left, is not in it.
pub fn rule(desired: &Desired, observed: &Observed, placement: &Placement) -> BTreeMap<Name, BTreeSet<u32>> {
    if observed.restored {
        return BTreeMap::new();
    }
    let exclusive = placement.exclusive();
    let on = desired.vms.iter().filter(|(_, vm)| vm.power == Power::On);
    let shared = on.filter(|(name, _)| !placement.granted.contains_key(*name));
    let bound = shared.filter_map(|(name, vm)| {
        let left: BTreeSet<u32> = allowed(&vm.vm, observed)?.difference(&exclusive).copied().collect();
        (!left.is_empty()).then(|| (name.clone(), left))
    });
    bound.collect()
}

/// On-line pCPUs that a VM's `[placement]` allows, if not any.
pub(crate) fn allowed(spec: &VmSpec, observed: &Observed) -> Option<BTreeSet<u32>> {
    let (nodes, cpus) = (&spec.placement.nodes, &spec.placement.cpus);
    if nodes.is_any() && cpus.is_any() {
        return None;
    }
    let allowed = observed.cpus.iter().filter(|cpu| nodes.allows(cpu.node) && cpus.allows(cpu.id));
    Some(allowed.map(|cpu| cpu.id).collect())
}

/// Adds what was decided for a VM that owns no pCPUs, and why.
pub(crate) fn explain(
    observed: &Observed,
    decided: &Decided,
    name: &Name,
    vm: &VmDesired,
    status: &mut ResourceStatus,
) {
    let placement = &vm.vm.placement;
    let Some(allowed) = allowed(&vm.vm, observed) else { return };
    if decided.placement.granted.contains_key(name) {
        return;
    }
    if observed.restored {
        status.missing.push(
            "its vCPUs were let go by `taut host restore`: they are bound again with the next change of any setting".to_owned(),
        );
        return;
    }
    let wanted = format!("pCPUs {} on nodes {}", placement.cpus, placement.nodes);
    if allowed.is_empty() {
        status.missing.push(format!(
            "{wanted}: none of them is on-line here, so its vCPUs run anywhere; hint: `taut vm set {name} --cpu-affinity any --numa-nodes any`, or name some \
             of {}",
            Numbers(observed.cpus.iter().map(|cpu| cpu.id).collect())
        ));
        return;
    }
    // Of one that is off: where it would run.
    let exclusive = decided.placement.exclusive();
    let (gone, left): (BTreeSet<u32>, BTreeSet<u32>) =
        allowed.iter().partition(|cpu| exclusive.contains(cpu));
    let owners = owners(&decided.placement, &gone);
    if left.is_empty() {
        status.missing.push(format!(
            "{wanted}: all of them are exclusively other VMs' ({owners}), so its vCPUs run anywhere else; hint: name other pCPUs, or set one of these VMs \
             to normal"
        ));
        return;
    }
    let without = if gone.is_empty() {
        String::new()
    } else {
        format!("; without {}, which are exclusively other VMs' ({owners})", Numbers(gone))
    };
    status.decisions.push(Decision {
        decision: format!("its vCPUs run on pCPUs {} only", Numbers(left)),
        rule: format!("[placement] {wanted} (sched.cpu.affinity, numa.nodeAffinity){without}"),
        restart: false,
    });
    status.missing.extend(observed.unbound.get(name).cloned());
}

/// Whose these pCPUs are.
fn owners(placement: &Placement, cpus: &BTreeSet<u32>) -> String {
    let has = |(_, grant): &(&Name, &crate::placement::Grant)| {
        grant.cpus.iter().chain(&grant.idle).any(|cpu| cpus.contains(cpu))
    };
    let owners: Vec<_> = placement.granted.iter().filter(has).map(|(name, _)| name.as_str()).collect();
    owners.join(", ")
}

#[cfg(test)]
mod tests {
    use taut_api::Bytes;
    use taut_api::host::Cpu;

    use super::*;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    /// Two nodes of four pCPUs.
    fn host() -> Observed {
        let cpu = |id: u32| Cpu { id, package: 0, core: id, node: id / 4, llc: 0 };
        Observed { memory_total: Bytes::mib(4096), cpus: (0..8).map(cpu).collect(), ..Observed::default() }
    }

    fn desired(vms: &[(&str, serde_json::Value)]) -> Desired {
        let vm = |(text, more): &(&str, serde_json::Value)| {
            let mut json = serde_json::json!({ "power": "on", "memory": "64MiB" });
            json.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            (name(text), serde_json::from_value(json).unwrap())
        };
        Desired { vms: vms.iter().map(vm).collect(), ..Desired::default() }
    }

    /// Owns the pCPUs that it is allowed.
    fn high(cpus: &str, vcpus: u32) -> serde_json::Value {
        serde_json::json!({
            "vcpus": vcpus, "memory_reservation": "full", "cpu": { "reservation": "full" },
            "latency_sensitivity": "high", "placement": { "cpus": cpus },
        })
    }

    fn told(desired: &Desired, observed: &Observed, vm: &str) -> ResourceStatus {
        let mut status = ResourceStatus::default();
        let decided = Decided::new(desired, observed);
        explain(observed, &decided, &name(vm), &desired.vms[&name(vm)], &mut status);
        status
    }

    #[test]
    fn vcpus_are_bound_where_placement_allows_and_nobody_owns() {
        let affine = serde_json::json!({ "placement": { "cpus": "2,4-7", "nodes": "1" } });
        let plain = serde_json::json!({});
        let mut desired = desired(&[("a", affine), ("b", plain), ("high", high("5", 1))]);
        let observed = host();
        let bound = Decided::new(&desired, &observed).bound;
        assert_eq!(bound, [(name("a"), [4, 6, 7].into())].into(), "neither 2, of the other node, nor 5");
        let status = told(&desired, &observed, "a");
        assert_eq!(status.missing, Vec::<String>::new());
        assert_eq!(status.decisions[0].decision, "its vCPUs run on pCPUs 4,6-7 only");
        assert!(
            status.decisions[0].rule.ends_with("without 5, which are exclusively other VMs' (high)"),
            "{status:?}"
        );
        for other in ["b", "high"] {
            assert_eq!(told(&desired, &observed, other), ResourceStatus::default());
        }
        // The other one gives its pCPU back.
        desired.vms.get_mut(&name("high")).unwrap().power = Power::Off;
        assert_eq!(Decided::new(&desired, &observed).bound[&name("a")], [4, 5, 6, 7].into());
        let unbound = Observed { unbound: [(name("a"), "why not".to_owned())].into(), ..observed.clone() };
        assert_eq!(told(&desired, &unbound, "a").missing, ["why not"]);
        let restored = Observed { restored: true, ..observed };
        assert!(Decided::new(&desired, &restored).bound.is_empty());
        assert!(told(&desired, &restored, "a").missing[0].contains("taut host restore"));
    }

    #[test]
    fn nothing_left_is_said_with_the_reason() {
        let of = |cpus: &str| serde_json::json!({ "placement": { "cpus": cpus } });
        let desired = desired(&[("a", of("5-6")), ("b", of("64")), ("high", high("5-6", 2))]);
        let observed = host();
        assert!(Decided::new(&desired, &observed).bound.is_empty());
        let reason = |vm| told(&desired, &observed, vm).missing.join("; ");
        assert!(
            reason("a").starts_with("pCPUs 5-6 on nodes any: all of them are exclusively other VMs' (high)"),
            "{}",
            reason("a")
        );
        assert!(
            reason("b").contains("none of them is on-line here") && reason("b").ends_with("some of 0-7"),
            "{}",
            reason("b")
        );
    }
}
