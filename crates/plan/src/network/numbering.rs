//! Assigns port and segment numbers. A port or vSwitch keeps its number until it is deleted.

use std::collections::{BTreeMap, BTreeSet};

use taut_api::ApiError;
use taut_api::error::ErrorKind;
use taut_api::fabric::counters::MAX_PORTS;

use super::links::SEGMENTS;
use crate::facts::{Desired, Numbers, Owner};

/// Numbers for all ports and vSwitches of `desired`. New ones get the lowest free numbers.
///
/// # Errors
/// [`ErrorKind::Refused`] when there are more ports or vSwitches than numbers.
pub fn assign_numbers(desired: &Desired) -> Result<Numbers, ApiError> {
    let uplinks = desired.uplinks.keys().map(|name| Owner::Uplink(name.clone()));
    let owners = desired.ports().map(|(owner, _, _)| owner).chain(desired.sockets()).chain(uplinks);
    let owners = owners.map(|owner| owner.to_string());
    let groups = desired.portgroups.values().map(|group| group.vswitch.to_string());
    let segments = groups.chain(desired.uplinks.values().map(|uplink| uplink.vswitch.to_string()));
    Ok(Numbers {
        ports: keep_or_give(&desired.numbers.ports, owners.collect(), MAX_PORTS, "ports")?,
        segments: keep_or_give(&desired.numbers.segments, segments.collect(), SEGMENTS, "vSwitches")?,
    })
}

/// Keeps the number of each wanted key, and gives new keys the lowest free ones.
fn keep_or_give(
    given: &BTreeMap<String, u16>,
    wanted: BTreeSet<String>,
    limit: usize,
    what: &str,
) -> Result<BTreeMap<String, u16>, ApiError> {
    if wanted.len() > limit {
        return Err(ApiError::new(
            ErrorKind::Refused,
            format!("{} {what} are too many: a host has at most {limit}", wanted.len()),
            "delete VMs or attachments that are no longer needed",
        ));
    }
    let taken: BTreeSet<u16> =
        given.iter().filter(|(key, _)| wanted.contains(*key)).map(|(_, &number)| number).collect();
    let mut free = (0..=u16::MAX).filter(|number| !taken.contains(number));
    let number = |key: String| {
        let number = given.get(&key).copied().or_else(|| free.next()).expect("fewer wanted than numbers");
        (key, number)
    };
    Ok(wanted.into_iter().map(number).collect())
}
