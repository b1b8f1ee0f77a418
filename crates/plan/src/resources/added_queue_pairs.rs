//! Memory for queue pairs of running VMs: what is added at once, and what waits for the next start.

use taut_api::vm::{VmKind, VmSpec};
use taut_api::vmci::VmciSpec;
use taut_api::{Bytes, Name};

use crate::facts::{Action, Desired, Explanation, Observed, Process};

/// An action for each running QEMU that is to get memory for queue pairs now, or whose last attempt
/// has not ended.
pub fn add_queue_pairs(desired: &Desired, observed: &Observed) -> Vec<Action> {
    let begins =
        |process: &Process, spec: &VmSpec| process.ready && !process.stopping && can_be_added(spec, process);
    let action = |name: &Name, spec: &VmSpec| {
        let process = observed.process(name)?;
        let size = if can_be_added(spec, process) { wanted(spec) } else { Bytes(0) };
        (process.adds_queue_pairs || begins(process, spec))
            .then(|| Action::AddQueuePairs { vm: name.clone(), size })
    };
    desired.vms_on().filter_map(|(name, vm)| action(name, &vm.vm)).collect()
}

/// Returns whether the memory that a VM is to have can be added to its process.
fn can_be_added(spec: &VmSpec, process: &Process) -> bool {
    let wanted = wanted(spec);
    process.kind == VmKind::Qemu
        && process.vmci
        && process.queue_pairs.is_none()
        && wanted.0 > 0
        && wanted <= process.queue_pairs_room
}

/// Returns the memory for queue pairs that a VM is to have.
fn wanted(spec: &VmSpec) -> Bytes {
    spec.vmci.as_ref().map(VmciSpec::queue_pairs).unwrap_or_default()
}

/// Explains memory for queue pairs, and room for it, that the running process does not have yet.
pub(crate) fn explain_queue_pairs(spec: &VmSpec, process: Option<&Process>) -> Explanation {
    let mut told = Explanation::default();
    // A device that is added or removed is explained elsewhere.
    let Some(process) = process.filter(|process| process.vmci && spec.vmci.is_some()) else { return told };
    if process.machine.size.is_none() {
        return told;
    }
    let shown = |size: Bytes| if size.0 == 0 { "none".to_owned() } else { size.to_string() };
    let (now, then) = (process.queue_pairs.map(|memory| memory.size).unwrap_or_default(), wanted(spec));
    if can_be_added(spec, process) {
        told.decide(
            format!("it gets {then} of memory for queue pairs while it runs"),
            "it was started with room for it",
        );
        told.lack("its memory for queue pairs is not there yet: QEMU has not confirmed it");
    } else if now != then {
        told.decide_from(
            true,
            format!(
                "its memory for queue pairs is {} from its next start on; it runs with {}",
                shown(then),
                shown(now)
            ),
            "memory for queue pairs is added to a running VM only if that has none and was started with room for \
             it; it is never removed from one",
        );
    }
    let (now, then) = (process.queue_pairs_room, spec.queue_pairs_room());
    if now != then {
        told.decide_from(
            true,
            format!(
                "its room for queue pairs is {} from its next start on; it runs with {}",
                shown(then),
                shown(now)
            ),
            "the room is part of the machine that a VM starts with",
        );
    }
    told
}

#[cfg(test)]
mod tests {
    use taut_api::fabric::config::QueuePairMemory;

    use super::*;
    use crate::facts::{MachineSeen, MachineSize, VmSeen};

    fn spec(queue_pairs: &str, room: &str) -> VmSpec {
        let vmci = serde_json::json!({ "queue_pairs": queue_pairs, "queue_pairs_room": room });
        serde_json::from_value(serde_json::json!({ "vmci": vmci, "memory": "256MiB" })).unwrap()
    }

    /// A running VM with this memory for queue pairs and this room, in MiB.
    fn process(memory: u64, room: u64) -> Process {
        let (offset, size) = (Bytes::mib(2), Bytes::mib(memory));
        let queue_pairs = QueuePairMemory { inode: 7, offset, size, ring: None };
        let size = Some(MachineSize { queue_pairs: size, ..MachineSize::of(&spec("0", "0")) });
        Process {
            vmci: true,
            ready: true,
            queue_pairs: (memory > 0).then_some(queue_pairs),
            queue_pairs_room: Bytes::mib(room),
            machine: MachineSeen { size, ..MachineSeen::default() },
            ..Process::default()
        }
    }

    fn restarts(spec: &VmSpec, process: &Process) -> String {
        let told = explain_queue_pairs(spec, Some(process));
        let later = told.decisions.into_iter().filter(|decision| decision.restart);
        later.map(|decision| decision.decision).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn without_room_memory_changes_at_the_next_start() {
        let with = |queue_pairs| spec(queue_pairs, "0");
        assert_eq!(
            restarts(&with("16MiB"), &process(0, 0)),
            "its memory for queue pairs is 16MiB from its next start on; it runs with none"
        );
        assert_eq!(
            restarts(&with("0"), &process(16, 0)),
            "its memory for queue pairs is none from its next start on; it runs with 16MiB"
        );
        assert_eq!(restarts(&with("16MiB"), &process(16, 0)), "");
        let none = Process { vmci: false, ..process(0, 0) };
        assert_eq!(restarts(&with("16MiB"), &none), "", "the whole device is new");
        let gone = VmSpec { vmci: None, ..with("16MiB") };
        assert_eq!(restarts(&gone, &process(16, 0)), "", "the whole device goes");
        assert_eq!(
            restarts(&spec("0", "64MiB"), &process(0, 0)),
            "its room for queue pairs is 64MiB from its next start on; it runs with none"
        );
    }

    #[test]
    fn memory_is_added_to_a_running_vm_with_room_and_none_yet() {
        let name: Name = "db".parse().unwrap();
        let actions = |spec: &VmSpec, process: Process| {
            let mut vm: taut_api::vm::VmDesired =
                serde_json::from_value(serde_json::json!({ "power": "on" })).unwrap();
            vm.vm = spec.clone();
            let desired = Desired { vms: [(name.clone(), vm)].into(), ..Desired::default() };
            let seen = VmSeen { process: Some(process), ..VmSeen::default() };
            let observed = Observed { vms: [(name.clone(), seen)].into(), ..Observed::default() };
            add_queue_pairs(&desired, &observed)
        };
        let (wanted, room) = (spec("16MiB", "64MiB"), process(0, 64));
        let adds = |mib| [Action::AddQueuePairs { vm: name.clone(), size: Bytes::mib(mib) }];
        assert_eq!(actions(&wanted, room.clone()), adds(16));
        assert_eq!(restarts(&wanted, &room), "");
        assert_eq!(explain_queue_pairs(&wanted, Some(&room)).missing.len(), 1);

        let later = [
            (spec("0", "64MiB"), process(0, 64), ""),
            (wanted.clone(), process(16, 64), ""),
            (spec("32MiB", "64MiB"), process(16, 64), "it runs with 16MiB"),
            (spec("128MiB", "64MiB"), process(0, 64), "is 128MiB from its next start on"),
            (spec("16MiB", "0"), process(0, 0), "is 16MiB from its next start on"),
        ];
        for (spec, process, told) in later {
            assert_eq!(actions(&spec, process.clone()), []);
            let restarts = restarts(&spec, &process);
            assert!(restarts.contains(told) && restarts.is_empty() == told.is_empty(), "{restarts}");
        }
        for process in [
            Process { ready: false, ..room.clone() },
            Process { stopping: true, ..room.clone() },
            Process { vmci: false, ..room.clone() },
            Process { kind: VmKind::Micro, ..room.clone() },
        ] {
            assert_eq!(actions(&wanted, process), []);
        }
        let begun = Process { adds_queue_pairs: true, ..room };
        for (wanted, size) in [("0", 0), ("32MiB", 32), ("128MiB", 0)] {
            assert_eq!(actions(&spec(wanted, "64MiB"), begun.clone()), adds(size), "{wanted}");
        }
    }
}
