//! pCPUs for the fabric's threads that the user has not bound (`--fabric-cpus`, `--vmci-cpu`).
//!
//! A frame crosses from the fabric's worker to a vCPU and back, either through the memory and
//! caches of one NUMA node or through the link between two nodes. There is one worker for all VMs,
//! so there is one node: the one with most exclusive pCPUs of VMs that the fabric serves, among
//! those with a pCPU that no VM owns. The choice depends on the owners of pCPUs alone. Threads
//! move only when another node comes to have more, or when none of their pCPUs is left.

use std::collections::{BTreeMap, BTreeSet};

use taut_api::placement::Numbers;
use taut_api::vm::VmSpec;

use super::problem::{Grant, Placement};
use crate::facts::{Desired, Explanation, HostSeen, Observed, Row};

/// The node of the fabric's threads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Near {
    /// The node.
    pub node: u32,
    /// Its pCPUs that no VM owns. If there are none, the threads run anywhere.
    pub cpus: BTreeSet<u32>,
    /// The user has not bound the workers.
    pub workers: bool,
    /// The user has not bound the thread for VMCI sockets.
    pub sockets: bool,
}

/// Chooses the node of the fabric's threads. Returns `None` where they may run anywhere: the user
/// has bound all of them, the host has one node, or no VM that the fabric serves owns pCPUs.
pub fn place_fabric_threads(desired: &Desired, observed: &Observed, placement: &Placement) -> Option<Near> {
    let (workers, sockets) = (desired.workers.cpus.is_empty(), desired.socket_worker.cpu.is_none());
    let nodes: BTreeMap<u32, u32> = observed.host.cpus.iter().map(|cpu| (cpu.id, cpu.node)).collect();
    let several = nodes.values().collect::<BTreeSet<_>>().len() > 1;
    if !several || !(workers || sockets) {
        return None;
    }
    let served = |(name, _): &(&_, &Grant)| desired.vms.get(*name).is_some_and(|vm| is_served(&vm.vm));
    let mut owned: BTreeMap<u32, usize> = BTreeMap::new();
    for (_, grant) in placement.granted.iter().filter(served) {
        for node in grant.cpus.iter().filter_map(|cpu| nodes.get(cpu)) {
            *owned.entry(*node).or_default() += 1;
        }
    }
    let exclusive = placement.exclusive();
    let left = |node: u32| -> BTreeSet<u32> {
        let of_node = nodes.iter().filter(|(cpu, of)| **of == node && !exclusive.contains(cpu));
        of_node.map(|(cpu, _)| *cpu).collect()
    };
    // A node with no pCPU left comes last; of nodes with equal counts the lowest wins.
    let near = owned.into_iter().rev().map(|(node, count)| (node, left(node), count));
    let (node, cpus, _) = near.max_by_key(|(_, left, count)| (!left.is_empty(), *count))?;
    Some(Near { node, cpus, workers, sockets })
}

/// Returns whether the fabric moves frames or VMCI payload for the VM.
fn is_served(spec: &VmSpec) -> bool {
    !spec.nics.is_empty() || spec.vmci.is_some()
}

/// Explains the choice to a VM that owns pCPUs. A VM that the fabric does not serve is told
/// nothing.
pub(crate) fn explain_fabric_threads(
    near: &Near,
    host: &HostSeen,
    spec: &VmSpec,
    grant: &Grant,
) -> Explanation {
    let mut told = Explanation::default();
    if !is_served(spec) {
        return told;
    }
    let Near { node, cpus, workers, sockets } = near;
    let threads = match (workers, sockets) {
        (true, true) => "the fabric's worker and its thread for sockets run",
        (true, false) => "the fabric's worker runs",
        _ => "the fabric's thread for sockets runs",
    };
    let own = host.nodes_of(&grant.cpus).contains(node);
    let node = if own { format!("node {node}") } else { format!("node {node}, not the VM's own,") };
    let (decision, left) = if cpus.is_empty() {
        (format!("{threads} anywhere"), ", but no node of such VMs has a pCPU left that no VM owns")
    } else {
        (format!("{threads} on pCPUs {}", Numbers(cpus.clone())), "")
    };
    let reason = format!(
        "{node} has the most exclusive pCPUs of VMs that the fabric serves{left}; --fabric-cpus and \
         --vmci-cpu override this"
    );
    told.decide(decision, Row::LocalMemory.because(reason));
    told
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use taut_api::Name;
    use taut_api::host::Cpu;
    use taut_api::vm::VmDesired;

    use super::*;

    fn host(nodes: &[u32]) -> Observed {
        let cpu = |(id, node): (usize, &u32)| Cpu {
            id: id as u32,
            package: 0,
            core: id as u32,
            node: *node,
            llc: *node,
        };
        let host = HostSeen { cpus: nodes.iter().enumerate().map(cpu).collect(), ..HostSeen::default() };
        Observed { host, ..Observed::default() }
    }

    fn name(number: usize) -> Name {
        format!("vm{number:02}").parse().unwrap()
    }

    /// VMs that own these pCPUs. A VM that the fabric serves has a vNIC.
    fn vms(owned: &[(Vec<u32>, bool)]) -> (Desired, Placement) {
        let (mut desired, mut placement) = (Desired::default(), Placement::default());
        for (number, (cpus, served)) in owned.iter().enumerate() {
            let nics = if *served { r#"[{"portgroup": "lan"}]"# } else { "[]" };
            let vm: VmDesired =
                serde_json::from_str(&format!(r#"{{"power": "on", "nic": {nics}}}"#)).unwrap();
            desired.vms.insert(name(number), vm);
            placement.granted.insert(name(number), Grant { cpus: cpus.clone(), idle: Vec::new() });
        }
        (desired, placement)
    }

    #[test]
    fn the_node_with_most_exclusive_pcpus_is_chosen_and_told_to_all_owners() {
        let host = host(&[0, 0, 0, 1, 1, 1]);
        let (mut desired, placement) = vms(&[(vec![1], true), (vec![3, 4], true), (vec![2], false)]);
        let near = place_fabric_threads(&desired, &host, &placement).unwrap();
        assert_eq!((near.node, &near.cpus), (1, &[5].into()));
        let told = |number| {
            let spec = &desired.vms[&name(number)].vm;
            explain_fabric_threads(&near, &host.host, spec, &placement.granted[&name(number)]).decisions
        };
        let text = &told(1)[0];
        assert_eq!(text.decision, "the fabric's worker and its thread for sockets run on pCPUs 5");
        assert!(text.rule.contains("node 1 has the most"), "{text:?}");
        assert!(told(0)[0].rule.contains("node 1, not the VM's own, has the most"));
        assert_eq!(told(2), [], "it has no vNIC");
        desired.workers.cpus = vec![0];
        let near = place_fabric_threads(&desired, &host, &placement).unwrap();
        assert!(!near.workers && near.sockets);
        desired.socket_worker.cpu = Some(0);
        assert_eq!(place_fabric_threads(&desired, &host, &placement), None, "the user has bound both");
    }

    #[test]
    fn one_node_leaves_no_choice_and_a_full_node_no_pcpu() {
        let (desired, placement) = vms(&[(vec![1], true)]);
        assert_eq!(place_fabric_threads(&desired, &host(&[0, 0]), &placement), None);
        let near = place_fabric_threads(&desired, &host(&[0, 1]), &placement).unwrap();
        assert_eq!((near.node, near.cpus.len()), (1, 0));
        let vm = &desired.vms[&name(0)].vm;
        let grant = &placement.granted[&name(0)];
        let told = explain_fabric_threads(&near, &host(&[0, 1]).host, vm, grant);
        let told = &told.decisions[0];
        assert!(
            told.decision.ends_with("run anywhere")
                && told.rule.contains("no node of such VMs has a pCPU left"),
            "{told:?}"
        );
    }

    /// The node of each pCPU, and for each VM its pCPUs and whether the fabric serves it. No pCPU
    /// has two owners.
    fn cases() -> impl Strategy<Value = (Vec<u32>, Vec<(Vec<u32>, bool)>)> {
        let owners = |nodes: Vec<u32>| {
            let owner = vec(proptest::option::of(0..6_usize), nodes.len());
            (Just(nodes), owner, vec(any::<bool>(), 6))
        };
        vec(0..4_u32, 1..24).prop_flat_map(owners).prop_map(|(nodes, owners, served)| {
            let mut vms: Vec<_> = served.into_iter().map(|served| (Vec::new(), served)).collect();
            for (cpu, owner) in owners.into_iter().enumerate() {
                if let Some(owner) = owner {
                    vms[owner].0.push(cpu as u32);
                }
            }
            (nodes, vms)
        })
    }

    proptest! {
        #[test]
        fn threads_stay_on_free_pcpus_of_one_node_and_move_only_for_more_owners((nodes, owned) in cases(), newcomer in 0..24_u32) {
            let observed = host(&nodes);
            let (desired, placement) = vms(&owned);
            let Some(near) = place_fabric_threads(&desired, &observed, &placement) else { return Ok(()) };
            let exclusive = placement.exclusive();
            prop_assert!(near.cpus.iter().all(|cpu| nodes[*cpu as usize] == near.node && !exclusive.contains(cpu)));
            let count = |owned: &[(Vec<u32>, bool)], node: u32| {
                let served = owned.iter().filter(|(_, served)| *served).flat_map(|(cpus, _)| cpus);
                served.filter(|cpu| nodes[**cpu as usize] == node).count()
            };
            let left = |node: u32| (0..nodes.len() as u32).any(|cpu| nodes[cpu as usize] == node && !exclusive.contains(&cpu));
            let better = |node: u32| count(&owned, node) > count(&owned, near.node) && left(node) >= left(near.node);
            prop_assert!(!nodes.iter().any(|node| better(*node)));
            prop_assert_eq!(near.cpus.is_empty(), !nodes.iter().any(|node| count(&owned, *node) > 0 && left(*node)));
            // A VM that comes to the same node, or that the fabric does not serve, moves no thread.
            if (newcomer as usize) < nodes.len() && !exclusive.contains(&newcomer) {
                for served in [true, false] {
                    let mut more = owned.clone();
                    more.push((vec![newcomer], served));
                    let (desired, placement) = vms(&more);
                    let next = place_fabric_threads(&desired, &observed, &placement).unwrap();
                    let elsewhere = served && nodes[newcomer as usize] != near.node;
                    let took_the_last = near.cpus == [newcomer].into();
                    prop_assert!(elsewhere || took_the_last || near.cpus.is_empty() || next.node == near.node);
                }
            }
        }
    }
}
