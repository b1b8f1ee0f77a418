//! What a VMCI device must be in itself.

use std::collections::BTreeSet;

use taut_api::ApiError;
use taut_api::fabric::counters::MAX_CONNECTIONS;
use taut_api::vmci::{Cid, VmciSpec};

use crate::error::invalid;

/// Checks everything; the first fault is returned.
///
/// # Errors
/// [`taut_api::error::ErrorKind::Invalid`], with the values.
pub fn check(vmci: &VmciSpec) -> Result<(), ApiError> {
    if let Some(cid) = vmci.cid.filter(|cid| !cid.is_a_vms()) {
        return Err(invalid(
            format!(
                "vmci: a VM cannot have the context ID {cid}: 0 to 2 and {} have meanings of their own",
                u32::MAX
            ),
            format!("use one from {} to {}, or leave `cid` out and taut assigns one", Cid::FIRST, Cid::LAST),
        ));
    }
    let connections = vmci.most_connections();
    if !(1..=MAX_CONNECTIONS as u32).contains(&connections) {
        return Err(invalid(
            format!("vmci: connections = {connections} is outside 1 to {MAX_CONNECTIONS}"),
            "leave it out, or use a number in between; a VM that is to have no connection needs no [vmci]",
        ));
    }
    let half_open = vmci.most_half_open();
    if !(1..=connections).contains(&half_open) {
        return Err(invalid(
            format!(
                "vmci: half_open = {half_open} is outside 1 to {connections}, the number of its connections"
            ),
            "connections that nobody has accepted yet count as connections, too",
        ));
    }
    domains(vmci)
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
