//! Namespaces, external ports, interfaces and uplinks to attach and detach.
//!
//! A changed attachment is detached and attached again, and one whose interface is gone is attached
//! again. An uplink that moves to another vSwitch keeps its interface. Devices follow the MTU of
//! their vSwitch.

use taut_api::fabric::PortId;
use taut_api::network::{ExternalPortSpec, NetnsSpec};

use super::mtu::needs_mtu;
use crate::facts::{Action, Desired, NetnsSeen, Observed, Owner};

/// The actions for every attachment that is described or observed.
pub fn attach_and_detach_ports(desired: &Desired, observed: &Observed) -> Vec<Action> {
    let mut actions = Vec::new();
    for (name, seen) in &observed.netns {
        if !desired.netns.get(name).is_some_and(|wanted| same_device(wanted, &seen.spec)) {
            actions.push(Action::DetachNetns(name.clone()));
        }
    }
    for (name, seen) in &observed.external {
        if !desired.external.get(name).is_some_and(|wanted| same_socket(wanted, &seen.spec)) {
            actions.push(Action::DetachExternal(name.clone()));
        }
    }
    for name in observed.uplinks.keys().filter(|name| !desired.uplinks.contains_key(*name)) {
        actions.push(Action::DetachUplink(name.clone()));
    }
    for name in observed.netdevs.keys().filter(|name| !desired.netdevs.contains_key(*name)) {
        actions.push(Action::DetachNetdev(name.clone()));
    }
    if !observed.fabric.ready {
        return actions;
    }
    for name in desired.netdevs.keys() {
        let up_to_date = observed.netdevs.get(name).is_some_and(|seen| seen.lost.is_none());
        let port = desired.numbers.port(&Owner::Netdev(name.clone()));
        if let Some(port) = port.filter(|port| needs_device(observed, *port, up_to_date)) {
            actions.push(Action::AttachNetdev { name: name.clone(), port });
        }
    }
    for name in desired.uplinks.keys() {
        let up_to_date = observed.uplinks.get(name).is_some_and(|seen| seen.lost.is_none());
        let port = desired.numbers.port(&Owner::Uplink(name.clone()));
        if let Some(port) = port.filter(|port| needs_device(observed, *port, up_to_date)) {
            actions.push(Action::AttachUplink { name: name.clone(), port });
        }
    }
    for (name, wanted) in &desired.netns {
        let is_current = |seen: &NetnsSeen| !seen.lost && same_device(wanted, &seen.spec);
        let up_to_date = observed.netns.get(name).is_some_and(is_current);
        let port = desired.numbers.port(&Owner::Netns(name.clone()));
        if let Some(port) = port.filter(|port| needs_device(observed, *port, up_to_date)) {
            actions.push(Action::AttachNetns { name: name.clone(), port });
        }
    }
    for (name, wanted) in &desired.external {
        let up_to_date = observed.external.get(name).is_some_and(|seen| same_socket(wanted, &seen.spec));
        let port = desired.numbers.port(&Owner::External(name.clone()));
        if let Some(port) = port.filter(|port| needs_device(observed, *port, up_to_date)) {
            actions.push(Action::AttachExternal { name: name.clone(), port });
        }
    }
    let owners = desired.netns.keys().cloned().map(Owner::Netns);
    let owners = owners.chain(desired.netdevs.keys().cloned().map(Owner::Netdev));
    let owners = owners.chain(desired.uplinks.keys().cloned().map(Owner::Uplink));
    actions.extend(owners.filter(|owner| needs_mtu(desired, observed, owner)).map(Action::SetMtu));
    actions
}

/// Returns whether the port needs a socket or device: it has none, one of an earlier document, or
/// one that is gone.
fn needs_device(observed: &Observed, port: PortId, up_to_date: bool) -> bool {
    observed.awaits_attachment(port) || (!up_to_date && observed.attached(port))
}

/// Returns whether both documents describe the same TAP device. The port group is no part of it:
/// the fabric changes that without a new device.
fn same_device(a: &NetnsSpec, b: &NetnsSpec) -> bool {
    (&a.netns, &a.ifname, a.mac, a.ip, a.gateway) == (&b.netns, &b.ifname, b.mac, b.ip, b.gateway)
}

/// Returns whether both documents describe the same socket.
fn same_socket(a: &ExternalPortSpec, b: &ExternalPortSpec) -> bool {
    (&a.socket, a.role) == (&b.socket, b.role)
}
