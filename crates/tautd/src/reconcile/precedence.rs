//! The fabric, and threads of VMs that own pCPUs, before everybody else: made so on the host, and taken back.

use std::time::Instant;

use taut_api::event::Level;
use taut_api::fabric::config::WorkerMode;
use taut_host::precedence::{BACK, MOST};

use super::Reconciler;

impl Reconciler {
    /// Makes it so as long as VMs own pCPUs. A fabric that never sleeps would leave nothing to others.
    pub(super) fn settle_precedence(&mut self) {
        let polling = self.store.state().desired.workers.mode == WorkerMode::Polling;
        let (processes, fabric) = {
            let seen = self.board.lock();
            (seen.observed.vms.clone(), seen.fabric_pid)
        };
        let pid = |name| Some(processes.get(name)?.process.as_ref()?.pid);
        let mut wanted: Vec<u32> = self.wanted.keys().filter_map(pid).collect();
        if !wanted.is_empty() {
            wanted.extend(fabric.filter(|_| !polling));
        }
        match self.precedence.settle(&wanted, Instant::now()) {
            Ok(outcome) => {
                for (pid, percent) in outcome.greedy {
                    let message = format!(
                        "a thread of process {pid} has used {percent} % of a pCPU before everybody else, {MOST} % are allowed: it takes \
                         turns with others for {} s",
                        BACK.as_secs()
                    );
                    self.store.event(Level::Warning, "host", "latency.greedy", &message);
                }
                for problem in outcome.problems.iter().filter(|problem| !self.unsettled.contains(problem)) {
                    self.store.event(Level::Warning, "host", "latency.problem", problem);
                }
                self.unsettled = outcome.problems;
            }
            Err(error) => tracing::warn!(%error, "no thread is put before others: it could not be noted"),
        }
    }
}
