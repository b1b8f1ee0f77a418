//! How long a pCPU may take to wake up: `n/a` tolerates no latency, `0` any (SPEC LS-6).

use std::collections::BTreeSet;
use std::path::Path;

use crate::ledger::Wishes;

/// Adds a wish for each pCPU that runs a vCPU.
pub(crate) fn wishes(root: &Path, cpus: impl IntoIterator<Item = u32>, wishes: &mut Wishes<'_>) {
    let distinct: BTreeSet<u32> = cpus.into_iter().collect();
    for cpu in distinct {
        let path = root.join(format!("sys/devices/system/cpu/cpu{cpu}/power/pm_qos_resume_latency_us"));
        // Wished even where it is so: nobody else may lift it meanwhile.
        wishes.insert(path, Box::new(|_| Some("n/a".to_owned())));
    }
}
