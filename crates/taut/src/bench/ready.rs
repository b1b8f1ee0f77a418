//! `%RDY` of VMs between two moments.

use std::path::Path;

use taut_host::observe::evidence::{self, Reading};

/// Counters of some VMs at one moment.
pub(super) struct Ready(Vec<Reading>);

impl Ready {
    /// Reads the counters of VMs by their processes.
    pub(super) fn now(pids: &[u32]) -> Self {
        Self(pids.iter().map(|pid| evidence::read(Path::new("/"), *pid)).collect())
    }

    /// Returns the mean over all vCPUs of these VMs since `earlier` in percent; none without vCPUs.
    pub(super) fn percent_since(&self, earlier: &Self) -> Option<f64> {
        let pairs = earlier.0.iter().zip(&self.0);
        let each: Vec<_> = pairs
            .flat_map(|(before, after)| evidence::between(before, after, &[]).1)
            .map(|vcpu| vcpu.ready_percent)
            .collect();
        (!each.is_empty()).then(|| each.iter().sum::<f64>() / each.len() as f64)
    }
}
