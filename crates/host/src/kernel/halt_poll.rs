//! The time that KVM polls before it gives up a halted vCPU's pCPU: one setting per host (BP).

use std::path::Path;

use super::adjust::Adjustments;

/// Raises the polling time to at least `ns` nanoseconds.
pub(crate) fn poll_at_least(root: &Path, ns: u64, adjustments: &mut Adjustments<'_>) {
    let raise = move |before: &str| {
        let before = before.trim().parse::<u64>().ok()?;
        Some(before.max(ns).to_string())
    };
    adjustments.insert(root.join("sys/module/kvm/parameters/halt_poll_ns"), Box::new(raise));
}
