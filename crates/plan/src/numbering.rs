//! Port and segment numbers: given once, kept for the life of what they number, then free again.

use std::collections::{BTreeMap, BTreeSet};

use taut_api::ApiError;
use taut_api::Name;
use taut_api::error::ErrorKind;
use taut_api::fabric::PortId;
use taut_api::fabric::config::SegmentId;
use taut_api::fabric::counters::MAX_PORTS;

use crate::{Desired, Owner};

/// Numbers that were given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Numbers {
    /// By the text of the port's [`Owner`].
    pub ports: BTreeMap<String, u16>,
    /// By the name of the vSwitch.
    pub segments: BTreeMap<String, u16>,
}

impl Numbers {
    /// The number of a port.
    pub fn port(&self, owner: &Owner) -> Option<PortId> {
        self.ports.get(&owner.to_string()).copied().map(PortId)
    }

    /// The number of a vSwitch.
    pub fn segment(&self, vswitch: &Name) -> Option<SegmentId> {
        self.segments.get(vswitch.as_str()).copied().map(SegmentId)
    }
}

/// Numbers for everything in `desired`: what has one keeps it, what is gone gives it back, what is new gets the lowest
/// free one.
///
/// # Errors
/// [`ErrorKind::Refused`] when there are more ports or vSwitches than numbers.
pub fn assign(desired: &Desired) -> Result<Numbers, ApiError> {
    let owners = desired.ports().map(|(owner, _, _)| owner).chain(desired.sockets());
    let owners = owners.map(|owner| owner.to_string());
    let segments = desired.portgroups.values().map(|group| group.vswitch.to_string());
    Ok(Numbers {
        ports: keep_or_give(&desired.numbers.ports, owners.collect(), MAX_PORTS, "ports")?,
        segments: keep_or_give(
            &desired.numbers.segments,
            segments.collect(),
            usize::from(u16::MAX),
            "vSwitches",
        )?,
    })
}

fn keep_or_give(
    given: &BTreeMap<String, u16>,
    wanted: BTreeSet<String>,
    limit: usize,
    what: &str,
) -> Result<BTreeMap<String, u16>, ApiError> {
    if wanted.len() > limit {
        return Err(ApiError::new(
            ErrorKind::Refused,
            format!("{} {what} are too many: one host has at most {limit}", wanted.len()),
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
