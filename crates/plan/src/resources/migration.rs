//! Memory of a running VM that follows its vCPUs to other NUMA nodes of the host (LS-5).
//!
//! The destination is where the memory would be put if the VM started now
//! ([`crate::placement::numa`]). Ordinary pages of a VM without virtual NUMA nodes are moved while
//! it runs, a part at a time. Huge pages are not moved, because the other node may have none. The
//! memory is not moved back either: it has no other place that it belongs to.

use std::collections::{BTreeMap, BTreeSet};

use taut_api::enforcement::MemoryMove;
use taut_api::placement::Numbers;
use taut_api::vm::VmKind;
use taut_api::{Bytes, Name};

use crate::facts::{Desired, Explanation, MemoryPlace, Observed, Process, Row, VmSeen};
use crate::placement::numa::place_memory;
use crate::placement::problem::Placement;

/// The nodes to which the memory of each running VM is moved. A VM whose memory started there is
/// included, because an earlier daemon may have moved it away since.
pub fn move_memory_to_vcpus(
    desired: &Desired,
    observed: &Observed,
    placement: &Placement,
) -> BTreeMap<Name, BTreeSet<u32>> {
    let destination = |(name, seen): (&Name, &VmSeen)| {
        let process = seen.process.as_ref().filter(|process| !process.stopping)?;
        let spec = &desired.vms.get(name)?.vm;
        let next = place_memory(&observed.host, spec, placement.granted.get(name), &[]);
        Some((name.clone(), live_destination(observed, process, &next)?.clone()))
    };
    observed.vms.iter().filter_map(destination).collect()
}

/// The nodes to which the memory of a running VM moves now; `None` if it stays.
fn live_destination<'n>(
    observed: &Observed,
    process: &Process,
    next: &'n MemoryPlace,
) -> Option<&'n BTreeSet<u32>> {
    let movable = process.kind == VmKind::Qemu && why_fixed(&process.machine.memory, next).is_none();
    next.nodes.first().filter(|nodes| movable && !nodes.is_empty() && !observed.restored)
}

/// The reason why memory cannot move before the next start.
fn why_fixed(now: &MemoryPlace, next: &MemoryPlace) -> Option<&'static str> {
    if now.huge {
        return Some("huge pages stay where they are while QEMU runs");
    }
    let several = now.nodes.len() > 1 || next.nodes.len() > 1;
    several.then_some("the nodes of virtual NUMA nodes are fixed when QEMU starts")
}

/// Returns whether the memory has left, or is leaving, the nodes on which it `start`ed.
pub(crate) fn leaves_start(start: &MemoryPlace, moved: Option<&MemoryMove>) -> bool {
    moved.is_some_and(|moved| start.nodes != [moved.nodes.clone()])
}

/// Explains that the memory of a running VM is not where it would be put now.
pub(crate) fn explain_destination(observed: &Observed, process: &Process, next: &MemoryPlace) -> Explanation {
    let mut told = Explanation::default();
    let now = &process.machine.memory;
    if now.nodes == next.nodes {
        return told;
    }
    let nodes: Vec<_> = next.nodes.iter().map(|nodes| Numbers(nodes.clone()).to_string()).collect();
    let nodes = nodes.join(" and ");
    if live_destination(observed, process, next).is_some() {
        told.decide(
            format!("its memory goes to node {nodes} while it runs"),
            Row::LocalMemory.because("the move begins at once"),
        );
    } else {
        let why = why_fixed(now, next).unwrap_or("nothing is moved now");
        told.decide_from(
            true,
            format!("its memory goes to node {nodes} with its next start"),
            Row::LocalMemory.because(why),
        );
    }
    told
}

/// Explains how far a move has come. The memory was put at `start` when QEMU started; all of it was
/// allocated then if it was `locked`.
pub(crate) fn explain_progress(start: &MemoryPlace, moved: &MemoryMove, locked: bool) -> Explanation {
    let mut told = Explanation::default();
    let nodes = Numbers(moved.nodes.clone());
    let leaves = leaves_start(start, Some(moved));
    let rule = Row::LocalMemory.because(
        "memory follows to the node of the pCPUs that its vCPUs own, or to its [placement] nodes; it is \
         not moved back",
    );
    let (there, ahead, left) = (mib(moved.moved), mib(moved.ahead), mib(moved.left));
    if !moved.done {
        told.decide(
            format!(
                "its memory is being moved to node {nodes}: {there} moved, {ahead} not examined yet, \
                 {left} to be tried again"
            ),
            rule,
        );
    } else if moved.moved.0 > 0 {
        told.decide(format!("{there} of its memory were moved to node {nodes} while it runs"), rule);
    } else if leaves && moved.why.is_none() {
        told.decide(format!("its memory is on node {nodes}, and was there before"), rule);
    }
    if let Some(first) = start.nodes.first().filter(|first| leaves && !locked && !first.is_empty()) {
        told.decide_from(
            true,
            format!(
                "memory that it has not touched yet comes from node {}, as far as that has room, until its next start",
                Numbers(first.clone())
            ),
            Row::LocalMemory.because("QEMU was started with this node, and each page is examined once"),
        );
    }
    if moved.done {
        told.missing.extend(moved.shortfall());
    }
    told
}

fn mib(bytes: Bytes) -> String {
    format!("{:.1} MiB", bytes.0 as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use taut_api::host::Cpu;
    use taut_api::machine::VmAccelerator;
    use taut_api::vm::VmDesired;

    use super::*;
    use crate::facts::{HostSeen, MachineSeen};

    fn place(nodes: &[u32]) -> MemoryPlace {
        MemoryPlace { nodes: vec![nodes.iter().copied().collect()], huge: false }
    }

    /// A host with `nodes` nodes, and a running VM with memory at `start` and wanted on `wanted`.
    fn running(nodes: u32, start: MemoryPlace, wanted: &str) -> (Desired, Observed) {
        let name: Name = "db1".parse().unwrap();
        let vm: VmDesired =
            serde_json::from_value(serde_json::json!({ "placement": { "nodes": wanted } })).unwrap();
        let machine = MachineSeen { memory: start, ..MachineSeen::default() };
        let process = Process { accelerator: VmAccelerator::Kvm, machine, ..Process::default() };
        let cpu = |id: u32| Cpu { id, package: 0, core: id, node: id * nodes / 8, llc: 0 };
        let seen = VmSeen { process: Some(process), ..VmSeen::default() };
        let host = HostSeen { cpus: (0..8).map(cpu).collect(), ..HostSeen::default() };
        let observed = Observed { host, vms: [(name.clone(), seen)].into(), ..Observed::default() };
        (Desired { vms: [(name, vm)].into(), ..Desired::default() }, observed)
    }

    fn goes_to((desired, observed): &(Desired, Observed)) -> Option<BTreeSet<u32>> {
        move_memory_to_vcpus(desired, observed, &Placement::default()).into_values().next()
    }

    #[test]
    fn ordinary_memory_of_a_running_vm_follows() {
        assert_eq!(goes_to(&running(2, place(&[0]), "1")), Some([1].into()));
        assert_eq!(goes_to(&running(2, place(&[]), "0-1")), Some([0, 1].into()));
        assert_eq!(goes_to(&running(2, place(&[1]), "1")), Some([1].into()), "it may have been moved away");
        assert_eq!(goes_to(&running(2, place(&[0]), "any")), None, "it may stay anywhere");
        assert_eq!(goes_to(&running(1, place(&[]), "1")), None, "the host has one node");
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
    fn memory_that_moves_by_itself_needs_no_restart() {
        let of = |start: MemoryPlace| {
            let (desired, observed) = running(2, start, "1");
            let (name, vm) = desired.vms.first_key_value().unwrap();
            let next = place_memory(&observed.host, &vm.vm, None, &[]);
            let told = explain_destination(&observed, observed.process(name).unwrap(), &next);
            told.decisions.into_iter().map(|it| (it.decision, it.restart)).collect::<Vec<_>>()
        };
        let now = ("its memory goes to node 1 while it runs".to_owned(), false);
        assert_eq!(of(place(&[0])), [now]);
        let later = ("its memory goes to node 1 with its next start".to_owned(), true);
        assert_eq!(of(MemoryPlace { huge: true, ..place(&[0]) }), [later]);
    }

    fn decisions(told: &Explanation) -> Vec<(&str, bool)> {
        told.decisions.iter().map(|it| (&*it.decision, it.restart)).collect()
    }

    #[test]
    fn progress_is_told_in_numbers() {
        let mut moved = MemoryMove {
            nodes: [1].into(),
            moved: Bytes::mib(64),
            ahead: Bytes::mib(192),
            passes: 1,
            ..MemoryMove::default()
        };
        let way = "its memory is being moved to node 1: 64.0 MiB moved, 192.0 MiB not examined yet, \
                   0.0 MiB to be tried again";
        let later = (
            "memory that it has not touched yet comes from node 0, as far as that has room, until its next start",
            true,
        );
        assert_eq!(decisions(&explain_progress(&place(&[0]), &moved, false)), [(way, false), later]);
        assert_eq!(decisions(&explain_progress(&place(&[]), &moved, false)), [(way, false)]);
        assert_eq!(decisions(&explain_progress(&place(&[0]), &moved, true)), [(way, false)]);

        moved =
            MemoryMove { moved: Bytes::mib(255), ahead: Bytes(0), left: Bytes::mib(1), done: true, ..moved };
        moved.why = Some("something holds them".to_owned());
        moved.passes = 5;
        let told = explain_progress(&place(&[0]), &moved, true);
        let done = "255.0 MiB of its memory were moved to node 1 while it runs";
        assert_eq!(decisions(&told), [(done, false)]);
        let missing = &told.missing[0];
        assert!(missing.starts_with("256 pages (1.0 MiB) of its memory could not be moved to node 1"));
        assert!(missing.contains("tried 5 times: something holds them; hint: "), "{missing}");
    }

    #[test]
    fn memory_that_did_not_move_is_told_apart_from_memory_that_cannot_be_examined() {
        let mut moved = MemoryMove { nodes: [1].into(), done: true, passes: 1, ..MemoryMove::default() };
        assert_eq!(explain_progress(&place(&[1]), &moved, false), Explanation::default());
        let there = ("its memory is on node 1, and was there before", false);
        assert_eq!(decisions(&explain_progress(&place(&[]), &moved, false)), [there]);
        moved.why = Some("move_pages: not permitted".to_owned());
        let told = explain_progress(&place(&[]), &moved, false);
        assert_eq!(decisions(&told), []);
        assert!(told.missing[0].starts_with("its memory could not be"), "{told:?}");
    }
}
