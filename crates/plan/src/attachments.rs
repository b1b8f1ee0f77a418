//! Namespaces and external ports: attached when wanted, detached when not, both when they changed.

use taut_api::network::{ExternalPortSpec, NetnsSpec};

use crate::{Action, Desired, Observed, Owner, Plan};

/// Adds the actions for every attachment that is described or observed.
pub fn rule(desired: &Desired, observed: &Observed, plan: &mut Plan) {
    for (name, seen) in &observed.netns {
        if !desired.netns.get(name).is_some_and(|wanted| same_device(wanted, &seen.spec)) {
            plan.actions.push(Action::DetachNetns(name.clone()));
        }
    }
    for (name, seen) in &observed.external {
        if !desired.external.get(name).is_some_and(|wanted| same_socket(wanted, &seen.spec)) {
            plan.actions.push(Action::DetachExternal(name.clone()));
        }
    }
    if !observed.fabric_ready {
        return;
    }
    for (name, wanted) in &desired.netns {
        let there = observed.netns.get(name).is_some_and(|seen| same_device(wanted, &seen.spec));
        let port = desired.numbers.port(&Owner::Netns(name.clone()));
        if let Some(port) = port.filter(|port| observed.waits(*port) || (!there && observed.attached(*port)))
        {
            plan.actions.push(Action::AttachNetns { name: name.clone(), port });
        }
    }
    for (name, wanted) in &desired.external {
        let there = observed.external.get(name).is_some_and(|seen| same_socket(wanted, &seen.spec));
        let port = desired.numbers.port(&Owner::External(name.clone()));
        if let Some(port) = port.filter(|port| observed.waits(*port) || (!there && observed.attached(*port)))
        {
            plan.actions.push(Action::AttachExternal { name: name.clone(), port });
        }
    }
}

/// Is the device of one also right for the other? The port group is the fabric's affair.
fn same_device(a: &NetnsSpec, b: &NetnsSpec) -> bool {
    (&a.netns, &a.ifname, a.mac, a.ip) == (&b.netns, &b.ifname, b.mac, b.ip)
}

/// Is the socket of one also right for the other?
fn same_socket(a: &ExternalPortSpec, b: &ExternalPortSpec) -> bool {
    (&a.socket, a.role) == (&b.socket, b.role)
}
