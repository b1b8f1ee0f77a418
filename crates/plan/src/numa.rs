//! Where a VM's memory lies when it starts, and on which pages (SPEC LS-5).
//!
//! Memory goes to the nodes of the pCPUs that its vCPUs own, since from there it is read fastest; without exclusive pCPUs it goes to the
//! nodes that its `[placement]` names, or anywhere. Reserved memory is on huge pages where enough of them are free. Both are settled
//! when QEMU starts; what can follow later is the matter of [`migration`].

use std::collections::BTreeSet;

use taut_api::latency::Decision;
use taut_api::placement::Numbers;
use taut_api::shares::ResourceStatus;
use taut_api::vm::{VmKind, VmSpec};
use taut_api::{Bytes, Name};

use crate::latency::memory_is_reserved;
use crate::placement::Grant;
use crate::{Observed, Process, migration};

/// How a VM's memory is, or is to be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemoryPlace {
    /// Nodes of the host that each of its virtual NUMA nodes is bound to; none where it may be anywhere. One entry is no virtual NUMA.
    pub nodes: Vec<BTreeSet<u32>>,
    /// It is on huge pages of 2 MiB.
    pub huge: bool,
}

/// Where the memory of a VM that starts now goes. `grant` are the exclusive pCPUs that it is to have.
pub fn rule(observed: &Observed, spec: &VmSpec, grant: Option<&Grant>) -> MemoryPlace {
    let all: BTreeSet<u32> = observed.cpus.iter().map(|cpu| cpu.node).collect();
    let vcpus = spec.placement.virtual_nodes(spec.vcpus);
    let mut first = 0;
    let nodes = vcpus.iter().map(|count| {
        let mine = first..first + *count as usize;
        first = mine.end;
        match grant.and_then(|grant| grant.cpus.get(mine)) {
            // Nothing to choose from.
            _ if all.len() < 2 => BTreeSet::new(),
            Some(cpus) => {
                observed.cpus.iter().filter(|cpu| cpus.contains(&cpu.id)).map(|cpu| cpu.node).collect()
            }
            None => spec.placement.nodes.0.intersection(&all).copied().collect(),
        }
    });
    let nodes: Vec<BTreeSet<u32>> = nodes.collect();
    let bound: BTreeSet<u32> = nodes.iter().flatten().copied().collect();
    let free: u64 = observed
        .huge_pages
        .iter()
        .filter(|(node, _)| bound.is_empty() || bound.contains(node))
        .map(|(_, free)| free.0)
        .sum();
    // Of several nodes one might have too few of them.
    let one = bound.len() < 2;
    MemoryPlace { nodes, huge: memory_is_reserved(spec) && one && free >= spec.memory.0 }
}

/// Adds what was decided for a VM's memory, and why.
pub(crate) fn explain(
    observed: &Observed,
    name: &Name,
    spec: &VmSpec,
    process: Option<&Process>,
    grant: Option<&Grant>,
    status: &mut ResourceStatus,
) {
    let placement = &spec.placement;
    if spec.kind != VmKind::Qemu {
        return;
    }
    let next = rule(observed, spec, grant);
    let now = process.map(|process| &process.machine.memory);
    let place = now.unwrap_or(&next);
    let moved = process.and_then(|_| observed.moves.get(name));
    let several = observed.cpus.iter().map(|cpu| cpu.node).collect::<BTreeSet<_>>().len() > 1;
    let mut decide = |decision: String, rule: &str, restart| {
        status.decisions.push(Decision { decision, rule: rule.to_owned(), restart });
    };
    if place.nodes.len() > 1 {
        let rule = "LS-5: [placement] vcpus_per_node, from min_vcpus vCPUs on (numa.vcpu.maxPerVirtualNode, numa.vcpu.min)";
        decide(format!("the guest sees {} NUMA nodes", place.nodes.len()), rule, false);
    }
    let follows = moved.is_some_and(|moved| place.nodes != [moved.nodes.clone()]);
    let bound = if follows { &[] } else { &place.nodes[..] };
    for (node, bound) in bound.iter().enumerate().filter(|(_, bound)| !bound.is_empty()) {
        let what = if place.nodes.len() > 1 {
            format!("memory of its node {node}")
        } else {
            "its memory".to_owned()
        };
        let rule =
            "LS-5: the node of the pCPUs that its vCPUs own, or its [placement] nodes (numa.nodeAffinity)";
        decide(format!("{what} is bound to the host's node {}", Numbers(bound.clone())), rule, false);
    }
    if memory_is_reserved(spec) {
        let free = Bytes(observed.huge_pages.values().map(|free| free.0).sum());
        if place.huge {
            decide(
                "its memory is on huge pages of 2 MiB".to_owned(),
                "LS-5: enough of them were free when it started",
                false,
            );
        } else {
            let rule = format!(
                "LS-5: huge pages for {} were not free when it started, or are not on one node; free now: {}",
                spec.memory, free
            );
            decide("its memory is on ordinary pages".to_owned(), &rule, false);
        }
    }
    if let Some(now) = now.filter(|now| now.nodes != next.nodes && !follows) {
        if process.is_some_and(|process| migration::target(observed, process, &next).is_some()) {
            decide(
                format!("its memory goes to {} while it runs", places(&next)),
                "LS-5: it begins at once",
                false,
            );
        } else {
            let why = migration::fixed(now, &next).unwrap_or("nothing is moved now");
            decide(
                format!("its memory goes to {} with its next start", places(&next)),
                &format!("LS-5: {why}"),
                true,
            );
        }
    }
    if let Some(moved) = moved {
        migration::explain(place, moved, process.is_some_and(|process| process.locked), status);
    }
    if !placement.nodes.is_any() && !several {
        status.missing.push(format!("nodes {}: this host has one NUMA node", placement.nodes));
    }
}

fn places(place: &MemoryPlace) -> String {
    let nodes: Vec<_> = place.nodes.iter().map(|nodes| Numbers(nodes.clone()).to_string()).collect();
    format!("node {}", nodes.join(" and "))
}

#[cfg(test)]
mod tests {
    use taut_api::host::Cpu;

    use super::*;

    /// Two nodes of four pCPUs, huge pages on the second one.
    fn host(nodes: u32) -> Observed {
        let cpu = |id: u32| Cpu { id, package: 0, core: id, node: id * nodes / 8, llc: 0 };
        Observed {
            cpus: (0..8).map(cpu).collect(),
            huge_pages: [(0, Bytes(0)), (1, Bytes::mib(512))].into(),
            ..Observed::default()
        }
    }

    fn spec(json: &serde_json::Value) -> VmSpec {
        let mut all = serde_json::json!({ "memory": "256MiB", "memory_reservation": "full", "vcpus": 2 });
        all.as_object_mut().unwrap().extend(json.as_object().unwrap().clone());
        serde_json::from_value(all).unwrap()
    }

    fn grant(cpus: &[u32]) -> Grant {
        Grant { cpus: cpus.to_vec(), idle: Vec::new() }
    }

    #[test]
    fn memory_goes_where_the_pcpus_are() {
        let plain = spec(&serde_json::json!({}));
        let of = |nodes, cpus: &[u32]| rule(&host(nodes), &plain, Some(&grant(cpus)));
        assert_eq!(of(2, &[4, 5]), MemoryPlace { nodes: vec![[1].into()], huge: true });
        assert_eq!(of(2, &[1, 2]), MemoryPlace { nodes: vec![[0].into()], huge: false });
        assert_eq!(of(2, &[3, 4]), MemoryPlace { nodes: vec![[0, 1].into()], huge: false });
        assert_eq!(of(1, &[4, 5]).nodes, [BTreeSet::new()], "nothing to choose from");
        let affine = spec(&serde_json::json!({ "placement": { "nodes": "1" } }));
        assert_eq!(rule(&host(2), &affine, None).nodes, [BTreeSet::from([1])]);
        let large = spec(&serde_json::json!({ "memory": "1GiB" }));
        assert!(!rule(&host(2), &large, Some(&grant(&[4, 5]))).huge);
    }

    #[test]
    fn each_virtual_node_goes_where_its_vcpus_are() {
        let wide =
            spec(&serde_json::json!({ "vcpus": 4, "placement": { "vcpus_per_node": 2, "min_vcpus": 4 } }));
        let place = rule(&host(2), &wide, Some(&grant(&[5, 6, 1, 2])));
        assert_eq!(place.nodes, [BTreeSet::from([1]), BTreeSet::from([0])]);
        let mut status = ResourceStatus::default();
        explain(&host(2), &"db1".parse().unwrap(), &wide, None, Some(&grant(&[5, 6, 1, 2])), &mut status);
        let told: Vec<_> = status.decisions.iter().map(|it| &*it.decision).collect();
        let memory = |node, host| format!("memory of its node {node} is bound to the host's node {host}");
        assert_eq!(
            told,
            ["the guest sees 2 NUMA nodes", &memory(0, 1), &memory(1, 0), "its memory is on ordinary pages"]
        );
    }
}
