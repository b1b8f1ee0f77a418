//! Where those threads of the fabric run that the user has bound to no pCPU (`--fabric-cpus`, `--vmci-cpu`): near the VMs that wait for
//! them (SPEC LS-5).
//!
//! A frame crosses from the fabric's worker to a vCPU and back through memory and caches of one NUMA node, or through the wire between
//! two. There is one such worker, so there is one node: that of most exclusive pCPUs whose VMs the fabric serves, of those with a pCPU left.
//! It is a matter of who owns what alone: the threads move when another node has come to have more, or nothing is left, and not otherwise.

use std::collections::{BTreeMap, BTreeSet};

use taut_api::latency::Decision;
use taut_api::placement::Numbers;
use taut_api::vm::VmSpec;

use crate::placement::{Grant, Placement};
use crate::{Desired, Observed};

/// The node, and what is left of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Near {
    /// The node.
    pub node: u32,
    /// Its pCPUs that nobody owns; with none, the threads run anywhere.
    pub cpus: BTreeSet<u32>,
    /// Workers are left to the plan.
    pub workers: bool,
    /// So is the thread for VMCI sockets.
    pub sockets: bool,
}

/// Where they run; nothing where they may run anywhere: the user has bound all of them, the host has one node, or no VM that the fabric
/// serves owns pCPUs.
pub fn rule(desired: &Desired, observed: &Observed, placement: &Placement) -> Option<Near> {
    let (workers, sockets) = (desired.workers.cpus.is_empty(), desired.socket_worker.cpu.is_none());
    let nodes: BTreeMap<u32, u32> = observed.cpus.iter().map(|cpu| (cpu.id, cpu.node)).collect();
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
    // One with nothing left comes last; of nodes with as many the lowest.
    let near = owned.into_iter().rev().map(|(node, count)| (node, left(node), count));
    let (node, cpus, _) = near.max_by_key(|(_, left, count)| (!left.is_empty(), *count))?;
    Some(Near { node, cpus, workers, sockets })
}

/// Does the fabric move anything for it?
fn is_served(spec: &VmSpec) -> bool {
    !spec.nics.is_empty() || spec.vmci.is_some()
}

/// What a VM that owns pCPUs is told of it.
pub(crate) fn explain(near: &Near, observed: &Observed, spec: &VmSpec, grant: &Grant) -> Option<Decision> {
    if !is_served(spec) {
        return None;
    }
    let Near { node, cpus, workers, sockets } = near;
    let who = match (workers, sockets) {
        (true, true) => "the fabric's worker and its thread for sockets run",
        (true, false) => "the fabric's worker runs",
        _ => "the fabric's thread for sockets runs",
    };
    let mine: BTreeSet<u32> =
        observed.cpus.iter().filter(|cpu| grant.cpus.contains(&cpu.id)).map(|cpu| cpu.node).collect();
    let whose = if mine.contains(node) { "which has" } else { "not its own: that one has" };
    let (decision, left) = if cpus.is_empty() {
        (format!("{who} anywhere"), "; but no such node has a pCPU left that no VM owns")
    } else {
        (format!("{who} on pCPUs {}", Numbers(cpus.clone())), "")
    };
    let rule = format!(
        "LS-5: near those that wait for it, on node {node}, {whose} most exclusive pCPUs of VMs that it serves{left}; --fabric-cpus and \
         --vmci-cpu bind it elsewhere"
    );
    Some(Decision { decision, rule, restart: false })
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
        Observed { cpus: nodes.iter().enumerate().map(cpu).collect(), ..Observed::default() }
    }

    fn name(number: usize) -> Name {
        format!("vm{number:02}").parse().unwrap()
    }

    /// VMs that own these pCPUs; those that the fabric serves have a card.
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
    fn it_is_the_node_of_most_exclusive_pcpus_and_said_to_both_sides() {
        let host = host(&[0, 0, 0, 1, 1, 1]);
        let (mut desired, placement) = vms(&[(vec![1], true), (vec![3, 4], true), (vec![2], false)]);
        let near = rule(&desired, &host, &placement).unwrap();
        assert_eq!((near.node, &near.cpus), (1, &[5].into()));
        let told = |number| {
            let vm = &desired.vms[&name(number)];
            explain(&near, &host, &vm.vm, &placement.granted[&name(number)])
        };
        let text = told(1).unwrap();
        assert_eq!(text.decision, "the fabric's worker and its thread for sockets run on pCPUs 5");
        assert!(text.rule.contains("on node 1, which has most"), "{text:?}");
        assert!(told(0).unwrap().rule.contains("on node 1, not its own: that one has most"));
        assert_eq!(told(2), None, "it has no card");
        desired.workers.cpus = vec![0];
        let near = rule(&desired, &host, &placement).unwrap();
        assert!(!near.workers && near.sockets);
        desired.socket_worker.cpu = Some(0);
        assert_eq!(rule(&desired, &host, &placement), None, "the user has bound both");
    }

    #[test]
    fn there_is_nothing_to_choose_on_one_node_and_nothing_left_on_a_full_one() {
        let (desired, placement) = vms(&[(vec![1], true)]);
        assert_eq!(rule(&desired, &host(&[0, 0]), &placement), None);
        let near = rule(&desired, &host(&[0, 1]), &placement).unwrap();
        assert_eq!((near.node, near.cpus.len()), (1, 0));
        let vm = &desired.vms[&name(0)].vm;
        let told = explain(&near, &host(&[0, 1]), vm, &placement.granted[&name(0)]).unwrap();
        assert!(
            told.decision.ends_with("run anywhere") && told.rule.contains("no such node has a pCPU left"),
            "{told:?}"
        );
    }

    /// Nodes of pCPUs, and for each VM its pCPUs and whether the fabric serves it; no pCPU twice.
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
        fn they_are_on_one_node_where_nobody_owns_and_move_only_for_more((nodes, owned) in cases(), newcomer in 0..24_u32) {
            let observed = host(&nodes);
            let (desired, placement) = vms(&owned);
            let Some(near) = rule(&desired, &observed, &placement) else { return Ok(()) };
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
            // One that comes to the same node, or is none of the fabric's, moves nobody off it.
            if (newcomer as usize) < nodes.len() && !exclusive.contains(&newcomer) {
                for served in [true, false] {
                    let mut more = owned.clone();
                    more.push((vec![newcomer], served));
                    let (desired, placement) = vms(&more);
                    let next = rule(&desired, &observed, &placement).unwrap();
                    let elsewhere = served && nodes[newcomer as usize] != near.node;
                    let took_the_last = near.cpus == [newcomer].into();
                    prop_assert!(elsewhere || took_the_last || near.cpus.is_empty() || next.node == near.node);
                }
            }
        }
    }
}
