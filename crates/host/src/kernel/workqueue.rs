//! The pCPUs that run the kernel's unbound work.

use std::collections::BTreeSet;
use std::path::Path;

use super::adjust::Adjustments;
use super::mask;

/// Takes the exclusive pCPUs out of the mask of unbound workqueues.
pub(crate) fn move_off<'a>(root: &Path, exclusive: &'a BTreeSet<u32>, adjustments: &mut Adjustments<'a>) {
    let path = root.join("sys/devices/virtual/workqueue/cpumask");
    adjustments.insert(path, Box::new(move |before: &str| mask::without(before, exclusive)));
}
