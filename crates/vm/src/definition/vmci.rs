//! Checks of a VMCI device that do not depend on other VMs.

use std::collections::BTreeSet;

use taut_api::fabric::counters::MAX_CONNECTIONS;
use taut_api::vm::VmKind;
use taut_api::vmci::{Cid, VmciSpec};
use taut_api::word::removes;
use taut_api::{ApiError, Bytes};

use crate::error::invalid;

/// Checks the device of a VM of this kind and returns the first fault.
///
/// # Errors
/// [`taut_api::error::ErrorKind::Invalid`], with the values.
pub fn check(kind: VmKind, vmci: &VmciSpec) -> Result<(), ApiError> {
    if let Some(cid) = vmci.cid.filter(|cid| !cid.is_a_vms()) {
        return Err(invalid(
            format!("vmci: a VM cannot have the context ID {cid}: 0 to 2 and {} are reserved", u32::MAX),
            format!("use one from {} to {}, or remove `cid` and taut assigns one", Cid::FIRST, Cid::LAST),
        ));
    }
    let connections = vmci.most_connections();
    if !(1..=MAX_CONNECTIONS as u32).contains(&connections) {
        return Err(invalid(
            format!("vmci: connections = {connections} is outside 1 to {MAX_CONNECTIONS}"),
            "use a number in this range, or remove `connections` for the default; if the VM needs no connections, remove [vmci]",
        ));
    }
    let half_open = vmci.most_half_open();
    if !(1..=connections).contains(&half_open) {
        return Err(invalid(
            format!("vmci: half_open = {half_open} is outside 1 to {connections}, the limit for connections"),
            "use at most as many as `connections`: half-open ones count as connections",
        ));
    }
    if let Some(group) = vmci.group.as_ref().filter(|group| removes(group.as_str())) {
        return Err(invalid(
            format!("vmci: group = \"{group}\" names no group"),
            "remove `group` if no group may connect, or write the group's number",
        ));
    }
    queue_pairs(kind, "queue_pairs", vmci.queue_pairs())?;
    queue_pairs(kind, "queue_pairs_room", vmci.queue_pairs_room())?;
    domains(vmci)
}

/// Checks the size of the memory for queue pairs, or of the room for it; 0 is none.
fn queue_pairs(kind: VmKind, key: &str, size: Bytes) -> Result<(), ApiError> {
    if size.0 == 0 {
        return Ok(());
    }
    if kind == VmKind::Micro {
        return Err(invalid(
            format!("vmci: a micro VM has no queue pairs ({key} = {size}): no program in it could map them"),
            format!("remove `{key}`, or use kind = \"qemu\""),
        ));
    }
    let (least, most) = (*VmciSpec::QUEUE_PAIRS.start(), *VmciSpec::QUEUE_PAIRS.end());
    if size.0.is_power_of_two() && (least..=most).contains(&size) {
        return Ok(());
    }
    let above = Bytes(size.clamp(least, most).0.next_power_of_two());
    let hint = if size.0.is_power_of_two() || above == least || size > most {
        format!("use {above}, or another power of two between these; a number without a unit is bytes")
    } else {
        format!("use {} or {above}", Bytes(above.0 / 2))
    };
    Err(invalid(format!("vmci: {key} = {size} is no power of two from {least} to {most}"), hint))
}

fn domains(vmci: &VmciSpec) -> Result<(), ApiError> {
    let most = VmciSpec::MOST_DOMAINS;
    if vmci.domains.len() > most {
        return Err(invalid(
            format!("vmci: {} domains are more than {most}", vmci.domains.len()),
            "use one domain for all VMs that may talk to each other",
        ));
    }
    let mut seen = BTreeSet::new();
    match vmci.domains.iter().find(|domain| !seen.insert(*domain)) {
        Some(domain) => {
            Err(invalid(format!("vmci: the domain `{domain}` is named twice"), "name each domain once"))
        }
        None => Ok(()),
    }
}
