//! Limits of a pCPU's wake-up latency: `n/a` tolerates none, `0` sets no limit (LS-6).

use std::collections::BTreeSet;
use std::path::Path;

use super::adjust::Adjustments;

/// Sets each pCPU that runs a vCPU to tolerate no wake-up latency.
pub(crate) fn tolerate_none(
    root: &Path,
    cpus: impl IntoIterator<Item = u32>,
    adjustments: &mut Adjustments<'_>,
) {
    let distinct: BTreeSet<u32> = cpus.into_iter().collect();
    for cpu in distinct {
        let path = root.join(format!("sys/devices/system/cpu/cpu{cpu}/power/pm_qos_resume_latency_us"));
        // Claimed even if it is `n/a` already, so that no other holder lifts it meanwhile.
        adjustments.insert(path, Box::new(|_| Some("n/a".to_owned())));
    }
}
