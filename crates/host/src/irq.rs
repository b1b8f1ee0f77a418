//! Interrupts: those that can be moved leave exclusive pCPUs, and new ones do not come there.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::ledger::Wishes;
use crate::{list, mask};

/// Adds a wish for each interrupt. One that was bound to exclusive pCPUs only goes to the `host`'s.
pub(crate) fn wishes<'a>(
    root: &Path,
    exclusive: &'a BTreeSet<u32>,
    host: &'a BTreeSet<u32>,
    wishes: &mut Wishes<'a>,
) {
    let folder = root.join("proc/irq");
    let new = move |before: &str| mask::without(before, exclusive);
    wishes.insert(folder.join("default_smp_affinity"), Box::new(new));
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let wish = move |before: &str| {
            let after = list::without(before, exclusive)?;
            Some(list::format(if after.is_empty() { host } else { &after }))
        };
        wishes.insert(entry.path().join("smp_affinity_list"), Box::new(wish));
    }
}
