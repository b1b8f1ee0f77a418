//! Memory of running VMs moved to the nodes that the plan wants, a step in each round.

use std::collections::BTreeMap;
use std::time::Instant;

use taut_api::Name;
use taut_api::enforcement::{MemoryMove, VmShare};
use taut_api::event::Level;
use taut_api::placement::Numbers;
use taut_host::migrate::{Progress, Wanted};

use super::Reconciler;

impl Reconciler {
    /// Moves a bounded part, and tells when all of a VM's memory has been tried.
    pub(super) fn move_memory(&mut self) {
        let wanted = self.wanted_memory();
        self.mover.step(&wanted, Instant::now());
        let moves: BTreeMap<Name, MemoryMove> =
            self.mover.progress().into_iter().map(|(name, progress)| (name, seen(progress))).collect();
        let mut before: BTreeMap<Name, MemoryMove> = BTreeMap::new();
        let mut seen = self.board.lock();
        for (name, vm) in &mut seen.report.vms {
            before.extend(vm.memory.take().map(|moved| (name.clone(), moved)));
        }
        for (name, moved) in &moves {
            seen.report.vms.entry(name.clone()).or_default().memory = Some(moved.clone());
        }
        drop(seen);
        for (name, moved) in &moves {
            // Nothing of one that is done changes any more.
            if moved.done && before.get(name) != Some(moved) {
                self.tell_move(name, moved);
            }
        }
    }

    fn wanted_memory(&self) -> BTreeMap<Name, Wanted> {
        // No VM has more memory than the host.
        let most = self.board.lock().observed.host.memory_total;
        let of = |(name, share): (&Name, &VmShare)| {
            let wanted = Wanted { pid: share.pid, nodes: share.memory.clone(), most };
            (!share.memory.is_empty()).then(|| (name.clone(), wanted))
        };
        self.host_plan.vms.iter().filter_map(of).collect()
    }

    fn tell_move(&self, name: &Name, moved: &MemoryMove) {
        let subject = format!("vm/{name}");
        if moved.moved.0 > 0 {
            let nodes = Numbers(moved.nodes.clone());
            let message = format!("{} of its memory were moved to node {nodes}", moved.moved);
            self.store.event(Level::Info, &subject, "memory.moved", &message);
        }
        if let Some(shortfall) = moved.shortfall() {
            self.store.event(Level::Warning, &subject, "memory.not-moved", &shortfall);
        }
    }
}

/// As the plan sees it.
fn seen(progress: Progress) -> MemoryMove {
    let Progress { nodes, moved, ahead, left, why, passes, done } = progress;
    MemoryMove { nodes, moved, ahead, left, why, passes, done }
}
