//! May this document be written? References lead somewhere, addresses are taken once, what is in use stays.

use std::path::Path;

use taut_api::error::ErrorKind;
use taut_api::network::{ExternalPortSpec, MacLearning, NetnsSpec, PortGroupSpec};
use taut_api::shaping::{Shape, Shaping};
use taut_api::vm::VmSpec;
use taut_api::{ApiError, MacAddr, Name};

use crate::{Desired, Owner, cid};

/// Longest interface name that Linux takes, in bytes.
const MAX_IFNAME: usize = 15;
/// Longest path of a Unix socket, in bytes.
const MAX_SOCKET_PATH: usize = 107;

/// May the VM be written? `spec` is already valid in itself.
pub fn vm(desired: &Desired, name: &Name, spec: &VmSpec) -> Result<(), ApiError> {
    for (index, nic) in spec.nics.iter().enumerate() {
        let owner = Owner::Nic(name.clone(), index);
        portgroup_exists(desired, &owner, &nic.portgroup)?;
        mac_is_free(desired, &owner, nic.mac.unwrap_or_else(|| owner.derived_mac()))?;
        shaping_is_possible(&owner.to_string(), &nic.shaping.unwrap_or_default())?;
    }
    match spec.vmci.as_ref().and_then(|vmci| vmci.cid) {
        Some(own) => cid::is_free(desired, name, own),
        None => Ok(()),
    }
}

/// May the port group be written?
pub fn portgroup(desired: &Desired, name: &Name, spec: &PortGroupSpec) -> Result<(), ApiError> {
    if let Some(learning) = spec.mac_learning {
        mac_learning_is_possible(name, spec, learning)?;
    }
    shaping_is_possible(&format!("port group `{name}`"), &spec.shaping)?;
    if !desired.vswitches.contains_key(&spec.vswitch) {
        return Err(invalid(
            format!("port group `{name}` names the vSwitch `{}`, which does not exist", spec.vswitch),
            format!("create it: taut vswitch create {}", spec.vswitch),
        ));
    }
    Ok(())
}

/// May the namespace attachment be written?
pub fn netns(desired: &Desired, name: &Name, spec: &NetnsSpec) -> Result<(), ApiError> {
    let plain = |text: &str| {
        !text.is_empty()
            && !text.starts_with(['.', '-'])
            && text.bytes().all(|b| b.is_ascii_graphic() && b != b'/')
    };
    if !plain(&spec.netns) || spec.netns.len() > 200 {
        return Err(invalid(
            format!("`{}` cannot be the name of a network namespace", spec.netns),
            "use letters, digits and `-`, as for `ip netns add`",
        ));
    }
    if !plain(&spec.ifname) || spec.ifname.len() > MAX_IFNAME || spec.ifname.contains(['%', ':']) {
        return Err(invalid(
            format!("`{}` cannot be the name of a network interface", spec.ifname),
            format!("use 1 to {MAX_IFNAME} letters and digits"),
        ));
    }
    let same = |other: &NetnsSpec| (&other.netns, &other.ifname) == (&spec.netns, &spec.ifname);
    if let Some((other, _)) = desired.netns.iter().find(|(other, found)| *other != name && same(found)) {
        return Err(conflict(
            format!(
                "interface `{}` of namespace `{}` belongs to attachment `{other}`",
                spec.ifname, spec.netns
            ),
            "give the interface another name (`ifname`), or detach the other first",
        ));
    }
    let owner = Owner::Netns(name.clone());
    portgroup_exists(desired, &owner, &spec.portgroup)?;
    mac_is_free(desired, &owner, spec.mac.unwrap_or_else(|| owner.derived_mac()))
}

/// May the external port be written?
pub fn external(desired: &Desired, name: &Name, spec: &ExternalPortSpec) -> Result<(), ApiError> {
    if !Path::new(&spec.socket).is_absolute()
        || spec.socket.len() > MAX_SOCKET_PATH
        || spec.socket.contains('\0')
    {
        return Err(invalid(
            format!("`{}` cannot be the socket of external port `{name}`", spec.socket),
            format!("write an absolute path of at most {MAX_SOCKET_PATH} bytes"),
        ));
    }
    let same = |other: &ExternalPortSpec| other.socket == spec.socket;
    if let Some((other, _)) = desired.external.iter().find(|(other, found)| *other != name && same(found)) {
        return Err(conflict(
            format!("socket `{}` belongs to external port `{other}`", spec.socket),
            "use another path, or detach the other first",
        ));
    }
    let owner = Owner::External(name.clone());
    portgroup_exists(desired, &owner, &spec.portgroup)?;
    mac_is_free(desired, &owner, spec.mac.unwrap_or_else(|| owner.derived_mac()))
}

/// May the vSwitch be deleted? Not while port groups are on it.
pub fn vswitch_unused(desired: &Desired, name: &Name) -> Result<(), ApiError> {
    let users = desired.portgroups.iter().filter(|(_, group)| group.vswitch == *name);
    unused("vSwitch", name, &users.map(|(user, _)| format!("portgroup/{user}")).collect::<Vec<_>>())
}

/// May the port group be deleted? Not while anything is on it.
pub fn portgroup_unused(desired: &Desired, name: &Name) -> Result<(), ApiError> {
    let users = desired.ports().filter(|(_, portgroup, _)| *portgroup == name);
    unused("port group", name, &users.map(|(owner, _, _)| owner.to_string()).collect::<Vec<_>>())
}

fn unused(what: &str, name: &Name, users: &[String]) -> Result<(), ApiError> {
    if users.is_empty() {
        return Ok(());
    }
    Err(conflict(
        format!("{what} `{name}` is in use by {}", users.join(", ")),
        "delete, detach or move its users first",
    ))
}

fn portgroup_exists(desired: &Desired, owner: &Owner, portgroup: &Name) -> Result<(), ApiError> {
    if desired.portgroups.contains_key(portgroup) {
        return Ok(());
    }
    let known: Vec<_> = desired.portgroups.keys().map(Name::as_str).collect();
    let known = if known.is_empty() { "there are none yet".to_owned() } else { known.join(", ") };
    Err(invalid(
        format!("{owner} is to be on port group `{portgroup}`, which does not exist"),
        format!(
            "create it (taut portgroup create {portgroup} --vswitch NAME) or use one that exists: {known}"
        ),
    ))
}

fn mac_is_free(desired: &Desired, owner: &Owner, mac: MacAddr) -> Result<(), ApiError> {
    if !mac.is_assignable() {
        return Err(invalid(
            format!("{mac} of {owner} cannot be the address of a card: it is a group address or zero"),
            "use a unicast address such as 02:11:00:00:00:01",
        ));
    }
    let document = owner.document();
    match desired.ports().find(|(other, _, used)| *used == mac && other.document() != document) {
        Some((other, _, _)) => Err(conflict(
            format!("address {mac} of {owner} belongs to {other}"),
            "give one of them another address (`mac`)",
        )),
        None => Ok(()),
    }
}

fn shaping_is_possible(whose: &str, shaping: &Shaping) -> Result<(), ApiError> {
    shaping.check().map_err(|(direction, bad)| {
        invalid(
            format!("{whose} cannot be shaped `{direction}`: {bad}"),
            format!(
                "rates go from {}/s to {}/s, the peak at or above the average, the burst is at least 1 byte",
                Shape::MIN_RATE,
                Shape::MAX_RATE
            ),
        )
    })
}

fn mac_learning_is_possible(
    name: &Name,
    spec: &PortGroupSpec,
    learning: MacLearning,
) -> Result<(), ApiError> {
    if !spec.security.forged_transmits {
        return Err(invalid(
            format!(
                "port group `{name}` is to learn addresses, but rejects forged transmits: it would learn none"
            ),
            "accept forged transmits as well (`forged_transmits`), or leave `mac_learning` out",
        ));
    }
    let (limit, ageing) = (1..=MacLearning::MAX_LIMIT, MacLearning::AGEING_S);
    if !limit.contains(&learning.limit) || !ageing.contains(&learning.ageing_s) {
        return Err(invalid(
            format!(
                "port group `{name}` is to learn {} addresses per port and forget them after {} s",
                learning.limit, learning.ageing_s
            ),
            format!(
                "use a limit from {} to {} addresses, and an ageing from {} to {} s",
                limit.start(),
                limit.end(),
                ageing.start(),
                ageing.end()
            ),
        ));
    }
    Ok(())
}

pub(crate) fn invalid(message: impl Into<String>, hint: impl Into<String>) -> ApiError {
    ApiError::new(ErrorKind::Invalid, message, hint)
}

pub(crate) fn conflict(message: impl Into<String>, hint: impl Into<String>) -> ApiError {
    ApiError::new(ErrorKind::Conflict, message, hint)
}
