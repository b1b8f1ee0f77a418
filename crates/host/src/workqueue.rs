//! The kernel's unbound work: it leaves exclusive pCPUs.

use std::collections::BTreeSet;
use std::path::Path;

use crate::ledger::Wishes;
use crate::mask;

/// Adds the wish for the mask of unbound workqueues.
pub(crate) fn wishes<'a>(root: &Path, exclusive: &'a BTreeSet<u32>, wishes: &mut Wishes<'a>) {
    let path = root.join("sys/devices/virtual/workqueue/cpumask");
    wishes.insert(path, Box::new(move |before: &str| mask::without(before, exclusive)));
}
