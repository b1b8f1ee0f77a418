//! NUMA nodes and page size of a VM's memory when it starts (LS-5).
//!
//! Memory goes to the nodes of the pCPUs that the VM's vCPUs own, because these reach it fastest.
//! The memory of a VM without exclusive pCPUs goes to the nodes that its `[placement]` names, or
//! anywhere. Memory for which these nodes have no room goes to others. Reserved memory is on huge
//! pages if enough of them are free.

use std::collections::BTreeSet;

use taut_api::Bytes;
use taut_api::placement::Numbers;
use taut_api::vm::VmSpec;

use super::problem::Grant;
use crate::facts::reservation::memory_is_reserved;
use crate::facts::{Explanation, HostSeen, MemoryPlace, Row};

/// Chooses the place of the memory of a VM that starts now and will own the pCPUs of `grant`.
/// `promised` are huge pages that other VMs are about to take.
pub fn place_memory(
    host: &HostSeen,
    spec: &VmSpec,
    grant: Option<&Grant>,
    promised: &[PromisedPages],
) -> MemoryPlace {
    let all = host.nodes();
    let vcpus = spec.placement.virtual_nodes(spec.vcpus);
    let mut first = 0;
    let nodes = vcpus.iter().map(|count| {
        let mine = first..first + *count as usize;
        first = mine.end;
        match grant.and_then(|grant| grant.cpus.get(mine)) {
            // A host with one node leaves nothing to choose.
            _ if all.len() < 2 => BTreeSet::new(),
            Some(cpus) => host.nodes_of(cpus),
            None => spec.placement.nodes.0.intersection(&all).copied().collect(),
        }
    });
    // QEMU does not start if it may use only nodes without memory.
    let nodes: Vec<BTreeSet<u32>> = nodes.map(|nodes| &nodes - &host.bare_nodes).collect();
    let chosen: BTreeSet<u32> = nodes.iter().flatten().copied().collect();
    let free = free_huge_pages(host, &chosen, promised);
    // Memory on several nodes gets ordinary pages, because one node might have too few huge pages.
    let one = chosen.len() < 2;
    MemoryPlace { nodes, huge: memory_is_reserved(spec) && one && free >= spec.memory }
}

/// Huge pages that a starting VM has not taken yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromisedPages {
    /// Nodes of the host on which it takes them; any if empty.
    pub nodes: BTreeSet<u32>,
    /// Their size.
    pub size: Bytes,
}

/// Returns the free huge pages for a VM whose memory goes to the `chosen` nodes, or to any if there
/// are none. Pages that a VM takes on any node may all come from the chosen ones.
fn free_huge_pages(host: &HostSeen, chosen: &BTreeSet<u32>, promised: &[PromisedPages]) -> Bytes {
    let is_chosen = |node: &u32| chosen.is_empty() || chosen.contains(node);
    let free: u64 = host.huge_pages.iter().filter(|(node, _)| is_chosen(node)).map(|(_, free)| free.0).sum();
    let may_be_taken = |it: &&PromisedPages| it.nodes.is_empty() || it.nodes.iter().any(is_chosen);
    let taken: u64 = promised.iter().filter(may_be_taken).map(|it| it.size.0).sum();
    Bytes(free.saturating_sub(taken))
}

/// Explains the place of a VM's memory. `moved` says that the memory has left, or is leaving, the
/// nodes on which it started.
pub(crate) fn explain_place(host: &HostSeen, spec: &VmSpec, place: &MemoryPlace, moved: bool) -> Explanation {
    let mut told = Explanation::default();
    let several = place.nodes.len() > 1;
    if several {
        told.decide(
            format!("the guest sees {} NUMA nodes", place.nodes.len()),
            Row::LocalMemory.because(
                "[placement] has vcpus_per_node and the VM at least min_vcpus vCPUs \
                 (numa.vcpu.maxPerVirtualNode, numa.vcpu.min)",
            ),
        );
    }
    let nodes = if moved { &[] } else { &place.nodes[..] };
    for (node, on_host) in nodes.iter().enumerate().filter(|(_, on_host)| !on_host.is_empty()) {
        let what = if several { format!("memory of its node {node}") } else { "its memory".to_owned() };
        told.decide(
            format!("{what} is on the host's node {}, as far as that has room", Numbers(on_host.clone())),
            Row::LocalMemory.because(
                "the node of the pCPUs that its vCPUs own, or else the nodes of its [placement] \
                 (numa.nodeAffinity)",
            ),
        );
    }
    if memory_is_reserved(spec) {
        explain_pages(host, spec, place, &mut told);
    }
    told
}

fn explain_pages(host: &HostSeen, spec: &VmSpec, place: &MemoryPlace, told: &mut Explanation) {
    if place.huge {
        told.decide(
            "its memory is on huge pages of 2 MiB",
            Row::LocalMemory.because("enough of them were free when it started"),
        );
        return;
    }
    let free = Bytes(host.huge_pages.values().map(|free| free.0).sum());
    told.decide(
        "its memory is on ordinary pages",
        Row::LocalMemory.because(format!(
            "huge pages for {} were not free on one node when it started; the host has {free} of them free now",
            spec.memory
        )),
    );
}

#[cfg(test)]
mod tests {
    use taut_api::host::Cpu;

    use super::*;

    /// A host with eight pCPUs on `nodes` nodes, and free huge pages on node 1.
    fn host(nodes: u32) -> HostSeen {
        let cpu = |id: u32| Cpu { id, package: 0, core: id, node: id * nodes / 8, llc: 0 };
        HostSeen {
            cpus: (0..8).map(cpu).collect(),
            huge_pages: [(0, Bytes(0)), (1, Bytes::mib(512))].into(),
            ..HostSeen::default()
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
    fn memory_goes_to_the_nodes_of_the_vcpus() {
        let plain = spec(&serde_json::json!({}));
        let of = |nodes, cpus: &[u32]| place_memory(&host(nodes), &plain, Some(&grant(cpus)), &[]);
        assert_eq!(of(2, &[4, 5]), MemoryPlace { nodes: vec![[1].into()], huge: true });
        assert_eq!(of(2, &[1, 2]), MemoryPlace { nodes: vec![[0].into()], huge: false });
        assert_eq!(of(2, &[3, 4]), MemoryPlace { nodes: vec![[0, 1].into()], huge: false });
        assert_eq!(of(1, &[4, 5]).nodes, [BTreeSet::new()], "nothing to choose from");
        let affine = spec(&serde_json::json!({ "placement": { "nodes": "1" } }));
        assert_eq!(place_memory(&host(2), &affine, None, &[]).nodes, [BTreeSet::from([1])]);
        let large = spec(&serde_json::json!({ "memory": "1GiB" }));
        assert!(!place_memory(&host(2), &large, Some(&grant(&[4, 5])), &[]).huge);
    }

    #[test]
    fn memory_is_not_put_on_a_node_that_has_none() {
        let plain = spec(&serde_json::json!({}));
        let host = HostSeen { bare_nodes: [1].into(), ..host(2) };
        let of = |cpus: &[u32]| place_memory(&host, &plain, Some(&grant(cpus)), &[]).nodes;
        assert_eq!(of(&[3, 4]), [BTreeSet::from([0])]);
        assert_eq!(of(&[4, 5]), [BTreeSet::new()], "any node that has memory");
    }

    #[test]
    fn huge_pages_that_a_starting_vm_is_about_to_take_are_not_free() {
        let host = HostSeen { huge_pages: [(0, Bytes::mib(512)), (1, Bytes::mib(256))].into(), ..host(2) };
        let promised = |nodes: &[u32], mib| PromisedPages {
            nodes: nodes.iter().copied().collect(),
            size: Bytes::mib(mib),
        };
        let free = |chosen: &[u32], promised: &[PromisedPages]| {
            free_huge_pages(&host, &chosen.iter().copied().collect(), promised).as_mib()
        };
        assert_eq!([free(&[], &[]), free(&[0], &[]), free(&[1], &[])], [768, 512, 256]);
        let both = [promised(&[1], 200), promised(&[], 100)];
        assert_eq!([free(&[], &both), free(&[0], &both), free(&[1], &both)], [468, 412, 0]);
        let place = |promised: &[PromisedPages]| {
            place_memory(&host, &spec(&serde_json::json!({})), Some(&grant(&[4, 5])), promised).huge
        };
        assert!(place(&[promised(&[0], 500)]) && !place(&[promised(&[1], 2)]));
    }

    #[test]
    fn each_virtual_node_goes_to_the_nodes_of_its_vcpus() {
        let wide =
            spec(&serde_json::json!({ "vcpus": 4, "placement": { "vcpus_per_node": 2, "min_vcpus": 4 } }));
        let place = place_memory(&host(2), &wide, Some(&grant(&[5, 6, 1, 2])), &[]);
        assert_eq!(place.nodes, [BTreeSet::from([1]), BTreeSet::from([0])]);
        let status = explain_place(&host(2), &wide, &place, false);
        let told: Vec<_> = status.decisions.iter().map(|it| &*it.decision).collect();
        let memory = |node, host| {
            format!("memory of its node {node} is on the host's node {host}, as far as that has room")
        };
        assert_eq!(
            told,
            ["the guest sees 2 NUMA nodes", &memory(0, 1), &memory(1, 0), "its memory is on ordinary pages"]
        );
    }
}
