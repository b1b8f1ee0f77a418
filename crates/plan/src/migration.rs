//! Memory of a running VM that follows to other NUMA nodes of the host (SPEC LS-5).
//!
//! The nodes are those that it would be bound to if it were started now ([`numa::rule`]). Ordinary pages of a VM without virtual NUMA
//! are moved while it runs, a part at a time. Huge pages are not: there may be none on the other node. It is not undone: memory has no place
//! of its own that it would go back to.

use std::collections::{BTreeMap, BTreeSet};

use taut_api::latency::Decision;
use taut_api::placement::Numbers;
use taut_api::shares::ResourceStatus;
use taut_api::vm::VmKind;
use taut_api::{Bytes, Name};

use crate::numa::{self, MemoryPlace};
use crate::placement::Placement;
use crate::{Desired, MemoryMove, Observed, Process, VmSeen};

/// Nodes to which memory of running VMs is moved, as far as it is not there. What a process was started with does not say that it is:
/// memory may have been moved away since, by an earlier daemon.
pub fn rule(desired: &Desired, observed: &Observed, placement: &Placement) -> BTreeMap<Name, BTreeSet<u32>> {
    let of = |(name, seen): (&Name, &VmSeen)| {
        let process = seen.process.as_ref().filter(|process| !process.stopping)?;
        let spec = &desired.vms.get(name)?.vm;
        let next = numa::rule(observed, spec, placement.granted.get(name));
        Some((name.clone(), target(observed, process, &next)?.clone()))
    };
    observed.vms.iter().filter_map(of).collect()
}

/// Where the memory of this running VM goes, if it is moved at all.
pub(crate) fn target<'n>(
    observed: &Observed,
    process: &Process,
    next: &'n MemoryPlace,
) -> Option<&'n BTreeSet<u32>> {
    let movable = process.kind == VmKind::Qemu && fixed(&process.machine.memory, next).is_none();
    next.nodes.first().filter(|nodes| movable && !nodes.is_empty() && !observed.restored)
}

/// Why memory stays where it is until the next start.
pub(crate) fn fixed(now: &MemoryPlace, next: &MemoryPlace) -> Option<&'static str> {
    if now.huge {
        return Some("huge pages stay where they are while QEMU runs");
    }
    let several = now.nodes.len() > 1 || next.nodes.len() > 1;
    several.then_some("where each virtual node lies is settled when QEMU starts")
}

/// Adds how far memory is that follows while the VM runs. `start` is where it was put then, all of it if it was `allocated`.
pub(crate) fn explain(start: &MemoryPlace, moved: &MemoryMove, allocated: bool, status: &mut ResourceStatus) {
    let nodes = Numbers(moved.nodes.clone());
    let follows = start.nodes != [moved.nodes.clone()];
    let mut decide = |decision: String, rule: &str, restart| {
        status.decisions.push(Decision { decision, rule: format!("LS-5: {rule}"), restart });
    };
    let rule = "memory follows to the node of the pCPUs that its vCPUs own, or to its [placement] nodes; it is not moved back";
    let (there, ahead, stayed) = (mib(moved.moved), mib(moved.ahead), mib(moved.left));
    if !moved.done {
        decide(
            format!(
                "its memory is being moved to node {nodes}: {there} moved, {ahead} to be looked at, {stayed} to be tried again"
            ),
            rule,
            false,
        );
    } else if moved.moved.0 > 0 {
        decide(format!("{there} of its memory were moved to node {nodes} while it runs"), rule, false);
    } else if follows && moved.why.is_none() {
        decide(format!("its memory is on node {nodes}, where it was already"), rule, false);
    }
    if let Some(bound) = start.nodes.first().filter(|bound| follows && !allocated && !bound.is_empty()) {
        decide(
            format!(
                "memory that it has not touched yet comes from node {} until its next start",
                Numbers(bound.clone())
            ),
            "QEMU was started so, and each page is looked at once",
            true,
        );
    }
    if moved.done {
        status.missing.extend(moved.shortfall());
    }
}

impl MemoryMove {
    /// What of the memory is not on these nodes after all tries, and why.
    pub fn shortfall(&self) -> Option<String> {
        let why = self.why.as_ref()?;
        let nodes = Numbers(self.nodes.clone());
        let what = match self.left.0 >> 12 {
            0 => format!("its memory could not be looked at, to be moved to node {nodes}"),
            pages => {
                format!("{pages} pages ({}) of its memory could not be moved to node {nodes}", mib(self.left))
            }
        };
        Some(format!(
            "{what}, tried {} times: {why}; hint: its next start puts all of it there if there is room",
            self.tries
        ))
    }
}

fn mib(bytes: Bytes) -> String {
    format!("{:.1} MiB", bytes.0 as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use taut_api::host::Cpu;
    use taut_api::vm::VmDesired;

    use super::*;
    use crate::MachineSeen;

    fn place(nodes: &[u32]) -> MemoryPlace {
        MemoryPlace { nodes: vec![nodes.iter().copied().collect()], huge: false }
    }

    /// A host of so many nodes, with a VM that runs, was started so, and is wanted on `wanted`.
    fn running(nodes: u32, start: MemoryPlace, wanted: &str) -> (Desired, Observed) {
        let name: Name = "db1".parse().unwrap();
        let vm = serde_json::json!({ "placement": { "nodes": wanted } });
        let mut vm_desired: VmDesired = serde_json::from_str("{}").unwrap();
        vm_desired.vm = serde_json::from_value(vm).unwrap();
        let process = Process {
            pid: 7,
            kind: VmKind::Qemu,
            accelerator: "kvm".to_owned(),
            stopping: false,
            sockets: BTreeSet::new(),
            vmci: false,
            locked: false,
            cpu_pm: false,
            machine: MachineSeen { memory: start, ..MachineSeen::default() },
        };
        let cpu = |id: u32| Cpu { id, package: 0, core: id, node: id * nodes / 8, llc: 0 };
        let seen = VmSeen { process: Some(process), ..VmSeen::default() };
        let observed = Observed {
            cpus: (0..8).map(cpu).collect(),
            vms: [(name.clone(), seen)].into(),
            ..Observed::default()
        };
        (Desired { vms: [(name, vm_desired)].into(), ..Desired::default() }, observed)
    }

    fn goes_to(world: &(Desired, Observed)) -> Option<BTreeSet<u32>> {
        rule(&world.0, &world.1, &Placement::default()).into_values().next()
    }

    #[test]
    fn ordinary_memory_of_a_running_vm_follows() {
        assert_eq!(goes_to(&running(2, place(&[0]), "1")), Some([1].into()));
        assert_eq!(goes_to(&running(2, place(&[]), "0-1")), Some([0, 1].into()));
        assert_eq!(goes_to(&running(2, place(&[1]), "1")), Some([1].into()), "it may have been moved away");
        assert_eq!(goes_to(&running(2, place(&[0]), "any")), None, "anywhere is where it is");
        assert_eq!(goes_to(&running(1, place(&[]), "1")), None, "one node");
        let huge = MemoryPlace { huge: true, ..place(&[0]) };
        assert_eq!(goes_to(&running(2, huge, "1")), None);
        let wide = MemoryPlace { nodes: vec![[0].into(), [1].into()], huge: false };
        assert_eq!(goes_to(&running(2, wide, "1")), None);
        let mut restored = running(2, place(&[0]), "1");
        restored.1.restored = true;
        assert_eq!(goes_to(&restored), None);
        let mut stopping = running(2, place(&[0]), "1");
        let seen = stopping.1.vms.values_mut().next().unwrap();
        seen.process.as_mut().unwrap().stopping = true;
        assert_eq!(goes_to(&stopping), None);
    }

    #[test]
    fn no_restart_is_asked_for_what_will_follow_by_itself() {
        let of = |start: MemoryPlace| {
            let (desired, observed) = running(2, start, "1");
            let (name, vm) = desired.vms.first_key_value().unwrap();
            let mut status = ResourceStatus::default();
            numa::explain(&observed, name, &vm.vm, observed.vms[name].process.as_ref(), None, &mut status);
            decisions(&status)
                .into_iter()
                .map(|(what, restart)| (what.to_owned(), restart))
                .collect::<Vec<_>>()
        };
        let bound = ("its memory is bound to the host's node 0".to_owned(), false);
        let now = ("its memory goes to node 1 while it runs".to_owned(), false);
        assert_eq!(of(place(&[0])), [bound.clone(), now]);
        let later = ("its memory goes to node 1 with its next start".to_owned(), true);
        assert_eq!(of(MemoryPlace { huge: true, ..place(&[0]) }), [bound, later]);
    }

    fn told(start: &MemoryPlace, moved: &MemoryMove, allocated: bool) -> ResourceStatus {
        let mut status = ResourceStatus::default();
        explain(start, moved, allocated, &mut status);
        status
    }

    fn decisions(status: &ResourceStatus) -> Vec<(&str, bool)> {
        status.decisions.iter().map(|it| (&*it.decision, it.restart)).collect()
    }

    #[test]
    fn how_far_it_is_is_told_in_numbers() {
        let mut moved = MemoryMove {
            nodes: [1].into(),
            moved: Bytes::mib(64),
            ahead: Bytes::mib(192),
            tries: 1,
            ..MemoryMove::default()
        };
        let way = "its memory is being moved to node 1: 64.0 MiB moved, 192.0 MiB to be looked at, 0.0 MiB to be tried again";
        let later = ("memory that it has not touched yet comes from node 0 until its next start", true);
        assert_eq!(decisions(&told(&place(&[0]), &moved, false)), [(way, false), later]);
        assert_eq!(decisions(&told(&place(&[]), &moved, false)), [(way, false)]);
        assert_eq!(decisions(&told(&place(&[0]), &moved, true)), [(way, false)]);

        moved =
            MemoryMove { moved: Bytes::mib(255), ahead: Bytes(0), left: Bytes::mib(1), done: true, ..moved };
        moved.why = Some("something holds them".to_owned());
        moved.tries = 5;
        let status = told(&place(&[0]), &moved, true);
        let done = "255.0 MiB of its memory were moved to node 1 while it runs";
        assert_eq!(decisions(&status), [(done, false)]);
        let missing = "256 pages (1.0 MiB) of its memory could not be moved to node 1, tried 5 times: something holds them; hint: its next \
                       start puts all of it there if there is room";
        assert_eq!(status.missing, [missing]);
    }

    #[test]
    fn memory_that_was_there_already_is_no_news_and_one_that_cannot_be_seen_is_not_called_so() {
        let mut moved = MemoryMove { nodes: [1].into(), done: true, tries: 1, ..MemoryMove::default() };
        assert_eq!(told(&place(&[1]), &moved, false), ResourceStatus::default());
        let there = ("its memory is on node 1, where it was already", false);
        assert_eq!(decisions(&told(&place(&[]), &moved, false)), [there]);
        moved.why = Some("move_pages: not permitted".to_owned());
        let status = told(&place(&[]), &moved, false);
        assert_eq!(decisions(&status), []);
        assert!(status.missing[0].starts_with("its memory could not be looked at"), "{status:?}");
    }
}
