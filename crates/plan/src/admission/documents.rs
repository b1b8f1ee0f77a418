//! A document against the other documents: its references exist, its addresses are free, and a
//! document that is in use is not deleted.

use std::path::Path;

use taut_api::ip::{BadGateway, check_gateway};
use taut_api::network::{ExternalPortSpec, MacLearning, NetnsSpec, PortGroupSpec};
use taut_api::shaping::{Shape, Shaping};
use taut_api::vm::VmSpec;
use taut_api::vmci::Cid;
use taut_api::{ApiError, MacAddr, Name};

use super::network_io::check_allocation;
use super::refusal::{conflict, invalid};
use super::uplinks::admit_teaming;
use crate::facts::{Desired, Owner};

/// Longest interface name that Linux accepts, in bytes.
pub(super) const MAX_IFNAME: usize = 15;
/// Longest path of a Unix socket, in bytes.
const MAX_SOCKET_PATH: usize = 107;

/// Admits a VM. `spec` is already valid in itself.
///
/// # Errors
/// When a port group does not exist, or an address or context ID belongs to another port.
pub fn admit_vm(desired: &Desired, name: &Name, spec: &VmSpec) -> Result<(), ApiError> {
    for (index, nic) in spec.nics.iter().enumerate() {
        let owner = Owner::Nic(name.clone(), index);
        find_portgroup(desired, &owner, &nic.portgroup)?;
        admit_mac(desired, &owner, nic.mac.unwrap_or_else(|| owner.derived_mac()))?;
        admit_shaping(&owner.to_string(), &nic.shaping.limits())?;
        check_allocation(&owner.to_string(), &nic.uplink_allocation)?;
    }
    match spec.vmci.as_ref().and_then(|vmci| vmci.cid) {
        Some(own) => admit_cid(desired, name, own),
        None => Ok(()),
    }
}

/// Refuses a context ID that another VM has, whether or not that VM runs.
fn admit_cid(desired: &Desired, name: &Name, cid: Cid) -> Result<(), ApiError> {
    let has = |vm: &VmSpec| vm.vmci.as_ref().is_some_and(|vmci| vmci.cid == Some(cid));
    match desired.vms.iter().find(|(other, vm)| *other != name && has(&vm.vm)) {
        Some((other, _)) => Err(conflict(
            format!("the context ID {cid} of VM `{name}` belongs to VM `{other}`"),
            "leave `cid` (--vmci-cid, in a .vmx: vmci0.id) out, and taut assigns one that is free",
        )),
        None => Ok(()),
    }
}

/// Admits a port group.
pub fn admit_portgroup(desired: &Desired, name: &Name, spec: &PortGroupSpec) -> Result<(), ApiError> {
    if let Some(learning) = spec.mac_learning {
        admit_mac_learning(name, spec, learning)?;
    }
    let what = format!("port group `{name}`");
    admit_shaping(&what, &spec.shaping)?;
    if !desired.vswitches.contains_key(&spec.vswitch) {
        return Err(invalid(
            format!("port group `{name}` names the vSwitch `{}`, which does not exist", spec.vswitch),
            format!("create it: taut vswitch create {}", spec.vswitch),
        ));
    }
    if let Some(teaming) = &spec.teaming {
        admit_teaming(desired, &what, &spec.vswitch, teaming)?;
    }
    Ok(())
}

/// Admits a namespace attachment.
pub fn admit_netns(desired: &Desired, name: &Name, spec: &NetnsSpec) -> Result<(), ApiError> {
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
    admit_gateway(desired, name, spec)?;
    let owner = Owner::Netns(name.clone());
    find_portgroup(desired, &owner, &spec.portgroup)?;
    admit_mac(desired, &owner, spec.mac.unwrap_or_else(|| owner.derived_mac()))
}

/// Refuses a gateway that the interface cannot reach, and a second default route of a namespace.
fn admit_gateway(desired: &Desired, name: &Name, spec: &NetnsSpec) -> Result<(), ApiError> {
    check_gateway(spec.ip, spec.gateway)
        .map_err(|error| invalid(format!("attachment `{name}`: {error}"), BadGateway::HINT))?;
    let routes = |other: &NetnsSpec| other.netns == spec.netns && other.gateway.is_some();
    match desired.netns.iter().find(|(other, found)| *other != name && routes(found)) {
        Some((other, _)) if spec.gateway.is_some() => Err(conflict(
            format!("namespace `{}` has a gateway already, by attachment `{other}`", spec.netns),
            "leave `gateway` out; a namespace has one default route",
        )),
        _ => Ok(()),
    }
}

/// Admits an external port.
pub fn admit_external(desired: &Desired, name: &Name, spec: &ExternalPortSpec) -> Result<(), ApiError> {
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
    find_portgroup(desired, &owner, &spec.portgroup)?;
    admit_mac(desired, &owner, spec.mac.unwrap_or_else(|| owner.derived_mac()))
}

/// Admits the deletion of a vSwitch without port groups and uplinks.
pub fn admit_vswitch_deletion(desired: &Desired, name: &Name) -> Result<(), ApiError> {
    let groups = desired.portgroups.iter().filter(|(_, group)| group.vswitch == *name);
    let groups = groups.map(|(user, _)| format!("portgroup/{user}"));
    let uplinks = desired.uplinks.iter().filter(|(_, uplink)| uplink.vswitch == *name);
    let uplinks = uplinks.map(|(user, _)| format!("uplink/{user}"));
    admit_deletion("vSwitch", name, &groups.chain(uplinks).collect::<Vec<_>>())
}

/// Admits the deletion of a port group that no port is on.
pub fn admit_portgroup_deletion(desired: &Desired, name: &Name) -> Result<(), ApiError> {
    let users = desired.ports().filter(|(_, portgroup, _)| *portgroup == name);
    admit_deletion("port group", name, &users.map(|(owner, _, _)| owner.to_string()).collect::<Vec<_>>())
}

fn admit_deletion(what: &str, name: &Name, users: &[String]) -> Result<(), ApiError> {
    if users.is_empty() {
        return Ok(());
    }
    Err(conflict(
        format!("{what} `{name}` is in use by {}", users.join(", ")),
        "delete, detach or move its users first",
    ))
}

pub(super) fn find_portgroup(desired: &Desired, owner: &Owner, portgroup: &Name) -> Result<(), ApiError> {
    if desired.portgroups.contains_key(portgroup) {
        return Ok(());
    }
    let known: Vec<_> = desired.portgroups.keys().map(Name::as_str).collect();
    let known = if known.is_empty() { "there are none yet".to_owned() } else { known.join(", ") };
    Err(invalid(
        format!("{owner} names the port group `{portgroup}`, which does not exist"),
        format!(
            "create it (taut portgroup create {portgroup} --vswitch NAME), or use an existing one: {known}"
        ),
    ))
}

pub(super) fn admit_mac(desired: &Desired, owner: &Owner, mac: MacAddr) -> Result<(), ApiError> {
    if !mac.is_assignable() {
        return Err(invalid(
            format!("{mac} of {owner} cannot be the address of a vNIC: it is a group address or zero"),
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

fn admit_shaping(port: &str, shaping: &Shaping) -> Result<(), ApiError> {
    shaping.check().map_err(|(direction, bad)| {
        invalid(
            format!("{port} cannot be shaped `{direction}`: {bad}"),
            format!(
                "rates go from {}/s to {}/s, the peak at or above the average, the burst is at least 1 byte",
                Shape::MIN_RATE,
                Shape::MAX_RATE
            ),
        )
    })
}

fn admit_mac_learning(name: &Name, spec: &PortGroupSpec, learning: MacLearning) -> Result<(), ApiError> {
    if !spec.security.forged_transmits {
        return Err(invalid(
            format!(
                "port group `{name}` has mac_learning but rejects forged transmits, so it would learn no address"
            ),
            "accept forged transmits as well (`forged_transmits`), or leave `mac_learning` out",
        ));
    }
    let (limit, ageing) = (1..=MacLearning::MAX_LIMIT, MacLearning::AGEING_S);
    if !limit.contains(&learning.limit) || !ageing.contains(&learning.ageing_s) {
        return Err(invalid(
            format!(
                "mac_learning of port group `{name}` has a limit of {} addresses per port and an ageing of {} s",
                learning.limit, learning.ageing_s
            ),
            format!(
                "use a limit from {} to {} addresses and an ageing from {} to {} s",
                limit.start(),
                limit.end(),
                ageing.start(),
                ageing.end()
            ),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use taut_api::error::ErrorKind;
    use taut_api::vm::VmDesired;

    use super::*;

    #[test]
    fn first_hour_a_namespace_has_one_gateway_in_its_network() {
        let name = |text: &str| text.parse::<Name>().unwrap();
        let spec = |ifname: &str, ip: &str, gateway: &str| -> NetnsSpec {
            let spec = serde_json::json!({
                "netns": "fw", "portgroup": "lan", "ifname": ifname, "ip": ip, "gateway": gateway
            });
            serde_json::from_value(spec).unwrap()
        };
        let first = spec("a", "10.0.0.9/24", "10.0.0.1");
        let mut desired = Desired::default();
        assert_eq!(admit_gateway(&desired, &name("a"), &first), Ok(()));
        desired.netns.insert(name("a"), first.clone());
        assert_eq!(admit_gateway(&desired, &name("a"), &first), Ok(()), "the same again");
        let second = spec("b", "10.1.0.9/24", "10.1.0.1");
        let refused = admit_gateway(&desired, &name("b"), &second).unwrap_err();
        assert!(refused.message.contains("by attachment `a`"), "{refused}");
        let without = NetnsSpec { gateway: None, ..second };
        assert_eq!(admit_gateway(&desired, &name("b"), &without), Ok(()));
        let outside = admit_gateway(&desired, &name("a"), &spec("a", "10.0.0.9/24", "10.9.0.1")).unwrap_err();
        assert!(outside.message.starts_with("attachment `a`: the gateway 10.9.0.1 is no other"), "{outside}");
    }

    #[test]
    fn a_context_id_of_another_vm_is_refused() {
        let name = |text: &str| text.parse::<Name>().unwrap();
        let document: VmDesired =
            serde_json::from_value(serde_json::json!({ "vmci": { "cid": 77 } })).unwrap();
        let desired = Desired { vms: [(name("a"), document)].into(), ..Desired::default() };
        let error = admit_cid(&desired, &name("b"), Cid(77)).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Conflict);
        assert!(
            error.message.contains("77 of VM `b` belongs to VM `a`") && error.hint.contains("vmci0.id"),
            "{error}"
        );
        admit_cid(&desired, &name("a"), Cid(77)).unwrap();
        admit_cid(&desired, &name("b"), Cid(78)).unwrap();
    }
}
