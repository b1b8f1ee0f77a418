//! The fabric, and threads of VMs that own pCPUs, before everybody else: made so on the host, and taken back.

use std::time::Instant;

use taut_api::enforcement::HostPlan;
use taut_api::event::Level;
use taut_host::precedence::{BACK, MOST};

use super::Reconciler;

impl Reconciler {
    /// Makes it so as long as VMs own pCPUs.
    pub(super) fn settle_precedence(&mut self) {
        let HostPlan { vms, fabric, .. } = &self.host_plan;
        let vms = vms.values().filter(|share| share.priority).map(|share| share.pid);
        let wanted: Vec<u32> = vms.chain(*fabric).collect();
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
