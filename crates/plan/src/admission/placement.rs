//! A VM's `[placement]` against the NUMA nodes and pCPUs of the host.

use std::collections::BTreeSet;

use taut_api::placement::{Numbers, PlacementSpec};
use taut_api::{ApiError, Name};

use super::refusal::invalid;
use crate::facts::HostSeen;

/// Admits the nodes and pCPUs that a VM names: the host has all of them, on-line, and one of the
/// pCPUs at least is on one of the nodes.
///
/// # Errors
/// When one does not exist, or no pCPU is on a node; the message says which, the hint which exist.
pub fn admit_placement(host: &HostSeen, name: &Name, placement: &PlacementSpec) -> Result<(), ApiError> {
    let Some((nodes, cpus)) = existing(host) else { return Ok(()) };
    admit("NUMA node", "--numa-nodes", name, &placement.nodes, nodes)?;
    admit("pCPU", "--cpu-affinity", name, &placement.cpus, cpus)?;
    admit_overlap(host, name, placement)
}

/// Refuses nodes and pCPUs that leave the vCPUs no pCPU.
fn admit_overlap(host: &HostSeen, name: &Name, placement: &PlacementSpec) -> Result<(), ApiError> {
    if has_pcpus(host, placement) {
        return Ok(());
    }
    let there = host.cpus.iter().filter(|cpu| placement.nodes.allows(cpu.node)).map(|cpu| cpu.id);
    let there = there.collect::<Numbers>().named("pCPU");
    let (cpus, nodes) = (placement.cpus.named("pCPU"), placement.nodes.named("NUMA node"));
    Err(invalid(
        format!("VM `{name}` is bound to {cpus} and to {nodes}, and none of these pCPUs is there"),
        format!(
            "name some of {there}, which are there; or give one up: --cpu-affinity any, or --numa-nodes any"
        ),
    ))
}

/// Returns whether a placement allows a pCPU.
fn has_pcpus(host: &HostSeen, placement: &PlacementSpec) -> bool {
    host.allowed_pcpus(placement).is_none_or(|allowed| !allowed.is_empty())
}

fn admit(
    what: &str,
    option: &str,
    name: &Name,
    wanted: &Numbers,
    existing: BTreeSet<u32>,
) -> Result<(), ApiError> {
    let absent = Numbers(wanted.0.difference(&existing).copied().collect());
    if absent.is_any() {
        return Ok(());
    }
    Err(invalid(
        format!("VM `{name}` names {}, which this host does not have on-line", absent.named(what)),
        format!("name some of {}, or any: taut vm set {name} {option} any", Numbers(existing)),
    ))
}

/// Removes the nodes and pCPUs that the host does not have from a description that was written for
/// another one, and pCPUs of which none is on the nodes. Returns a remark for each field that was
/// changed, by the field's name.
pub fn remove_absent(host: &HostSeen, placement: &mut PlacementSpec) -> Vec<(&'static str, String)> {
    let Some((nodes, cpus)) = existing(host) else { return Vec::new() };
    let mut remarks = Vec::new();
    for (field, numbers, existing) in
        [("placement.nodes", &mut placement.nodes, nodes), ("placement.cpus", &mut placement.cpus, cpus)]
    {
        let absent = Numbers(numbers.0.difference(&existing).copied().collect());
        if !absent.is_any() {
            numbers.0.retain(|number| existing.contains(number));
            remarks.push((field, format!("{numbers}: this host has no {absent}")));
        }
    }
    if !has_pcpus(host, placement) {
        let apart = std::mem::take(&mut placement.cpus);
        let nodes = placement.nodes.named("NUMA node");
        remarks.push(("placement.cpus", format!("any: not on {nodes}: {}", apart.named("pCPU"))));
    }
    remarks
}

/// NUMA nodes and pCPUs of the host, once they are known.
fn existing(host: &HostSeen) -> Option<(BTreeSet<u32>, BTreeSet<u32>)> {
    let cpus: BTreeSet<u32> = host.cpus.iter().map(|cpu| cpu.id).collect();
    (!cpus.is_empty()).then(|| (host.nodes(), cpus))
}

#[cfg(test)]
mod tests {
    use taut_api::host::Cpu;

    use super::*;

    fn host() -> HostSeen {
        let cpu = |id: u32| Cpu { id, package: 0, core: id, node: id / 2, llc: 0 };
        HostSeen { cpus: (0..4).map(cpu).collect(), ..HostSeen::default() }
    }

    fn placement(nodes: &str, cpus: &str) -> PlacementSpec {
        let (nodes, cpus) = (nodes.parse().unwrap(), cpus.parse().unwrap());
        PlacementSpec { nodes, cpus, ..PlacementSpec::default() }
    }

    #[test]
    fn nodes_and_pcpus_that_do_not_exist_are_refused_with_those_that_do() {
        let name: Name = "db1".parse().unwrap();
        let refused = |nodes: &str, cpus: &str| {
            admit_placement(&host(), &name, &placement(nodes, cpus)).map_err(|error| error.to_string())
        };
        assert_eq!(refused("any", "any"), Ok(()));
        assert_eq!(refused("0-1", "0,3"), Ok(()));
        assert_eq!(refused("1", "0,3"), Ok(()), "one of the pCPUs is on the node");
        let nodes = refused("1-3", "any").unwrap_err();
        assert!(nodes.contains("NUMA nodes 2-3,") && nodes.contains("name some of 0-1,"), "{nodes}");
        let cpus = refused("any", "3,7").unwrap_err();
        assert!(cpus.contains("pCPU 7,") && cpus.contains("hint: name some of 0-3"), "{cpus}");
        let apart = refused("1", "0-1").unwrap_err();
        assert!(apart.contains("is bound to pCPUs 0-1 and to NUMA node 1, and none"), "{apart}");
        assert!(
            apart.contains("hint: name some of pCPUs 2-3,") && apart.contains("--cpu-affinity any"),
            "{apart}"
        );
        assert_eq!(
            admit_placement(&HostSeen::default(), &name, &placement("9", "9")),
            Ok(()),
            "not known yet"
        );
    }

    #[test]
    fn a_description_of_another_host_keeps_what_exists_here() {
        let mut both = placement("3", "2-5");
        assert_eq!(
            remove_absent(&host(), &mut both),
            [
                ("placement.nodes", "any: this host has no 3".to_owned()),
                ("placement.cpus", "2-3: this host has no 4-5".to_owned())
            ]
        );
        assert_eq!(both, placement("any", "2-3"));
        assert_eq!(remove_absent(&host(), &mut both), []);
        let mut apart = placement("1", "0");
        assert_eq!(
            remove_absent(&host(), &mut apart),
            [("placement.cpus", "any: not on NUMA node 1: pCPU 0".to_owned())]
        );
        assert_eq!(apart, placement("1", "any"));
    }
}
