//! How long KVM polls before it gives a halted vCPU's pCPU away: one setting for the host (SPEC BP).

use std::path::Path;

use crate::ledger::Wishes;

/// Adds the wish that it polls for at least so many nanoseconds.
pub(crate) fn wishes(root: &Path, ns: u64, wishes: &mut Wishes<'_>) {
    let wish = move |before: &str| {
        let before = before.trim().parse::<u64>().ok()?;
        Some(before.max(ns).to_string())
    };
    wishes.insert(root.join("sys/module/kvm/parameters/halt_poll_ns"), Box::new(wish));
}
