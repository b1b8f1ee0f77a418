//! MTUs of ports: that of the vSwitch, or of the interface behind the port if that is smaller
//! (VN-17).

use std::collections::BTreeMap;

use taut_api::vm::{NicModel, VmKind, VmSpec};
use taut_api::{Mtu, Name};

use crate::facts::{Desired, InterfaceSeen, Observed, Owner, RaisedMtu};

/// Returns the MTU of the vSwitch that a port is on.
pub fn vswitch_mtu(desired: &Desired, owner: &Owner) -> Option<Mtu> {
    desired.vswitches.get(vswitch_of(desired, owner)?).map(|vswitch| vswitch.mtu)
}

/// Returns the vSwitch that a port is on.
pub fn vswitch_of<'d>(desired: &'d Desired, owner: &Owner) -> Option<&'d Name> {
    let group = match owner {
        Owner::Nic(vm, index) => &desired.vms.get(vm)?.vm.nics.get(*index)?.portgroup,
        Owner::Netns(name) => &desired.netns.get(name)?.portgroup,
        Owner::External(name) => &desired.external.get(name)?.portgroup,
        Owner::Netdev(name) => &desired.netdevs.get(name)?.portgroup,
        Owner::Uplink(name) => return Some(&desired.uplinks.get(name)?.vswitch),
        Owner::Vmci(_) => return None,
    };
    Some(&desired.portgroups.get(group)?.vswitch)
}

/// Returns the MTU that the guest of a VM is told for each card by its index, when it starts.
/// Emulated cards cannot tell it.
pub fn told_mtus(desired: &Desired, name: &Name, spec: &VmSpec) -> BTreeMap<usize, Mtu> {
    let cards = spec.nics.iter().enumerate();
    let told = cards.filter(|(_, card)| spec.kind == VmKind::Micro || card.model == NicModel::Virtio);
    let mtu = |index| Some((index, vswitch_mtu(desired, &Owner::Nic(name.clone(), index))?));
    told.filter_map(|(index, _)| mtu(index)).collect()
}

/// Returns the longest packet that a port sends and receives. An interface may have a smaller MTU
/// than the vSwitch, because somebody has set it or it can have no larger one.
pub(super) fn limit_packets(desired: &Desired, observed: &Observed, owner: &Owner) -> Option<u16> {
    let wanted = vswitch_mtu(desired, owner)?;
    Some(short_interface(desired, observed, owner).unwrap_or_else(|| wanted.get()))
}

/// Returns the MTU of the interface behind a port, if it is smaller than that of the vSwitch:
/// longer packets are dropped there.
pub fn short_interface(desired: &Desired, observed: &Observed, owner: &Owner) -> Option<u16> {
    let seen = interface(observed, owner)?;
    let found = u16::try_from(seen.mtu).ok()?;
    (found < vswitch_mtu(desired, owner)?.get()).then_some(found)
}

/// Returns what is seen of the interface behind a port.
fn interface<'o>(observed: &'o Observed, owner: &Owner) -> Option<&'o InterfaceSeen> {
    match owner {
        Owner::Netdev(name) => observed.netdevs.get(name),
        Owner::Uplink(name) => observed.uplinks.get(name),
        Owner::Nic(..) | Owner::Netns(_) | Owner::External(_) | Owner::Vmci(_) => None,
    }
}

/// Returns whether the device behind an attached port has to be set for another MTU of the vSwitch.
/// The device is set once for each MTU: another program may change it afterwards.
pub(super) fn needs_mtu(desired: &Desired, observed: &Observed, owner: &Owner) -> bool {
    let Some(wanted) = vswitch_mtu(desired, owner) else { return false };
    let is_attached = desired.numbers.port(owner).is_some_and(|port| observed.attached(port));
    let set_for = match owner {
        Owner::Netns(name) => observed.netns.get(name).filter(|seen| !seen.lost).map(|seen| seen.mtu),
        _ => interface(observed, owner).filter(|seen| seen.lost.is_none()).map(|seen| seen.mtu_for),
    };
    is_attached && set_for.is_some_and(|set_for| set_for != Some(wanted))
}

/// Returns the change for an interface that has `now` when the vSwitch has `wanted`; `None` if
/// there is nothing to change or to give back. `raised` is the change before. An interface keeps a
/// larger MTU of its own.
pub fn raise_mtu(now: u32, raised: Option<RaisedMtu>, wanted: Mtu) -> Option<RaisedMtu> {
    // Another program's value is the interface's own one from then on.
    let own = raised.filter(|raised| raised.explains(now)).map_or(now, |raised| raised.from);
    let to = own.max(wanted.into());
    ((now, own) != (to, to)).then_some(RaisedMtu { from: own, was: now, to })
}

#[cfg(test)]
mod tests {
    use taut_api::fabric::PortId;
    use taut_api::network::VSwitchSpec;

    use super::*;
    use crate::facts::PortSeen;
    use crate::network::numbering::assign_numbers;

    fn mtu(bytes: u32) -> Mtu {
        bytes.try_into().unwrap()
    }

    #[test]
    fn an_interface_is_raised_and_given_back_as_it_was() {
        let change = |from, was, to| Some(RaisedMtu { from, was, to });
        assert_eq!(raise_mtu(1500, None, mtu(1500)), None);
        assert_eq!(raise_mtu(1500, None, mtu(9000)), change(1500, 1500, 9000));
        assert_eq!(raise_mtu(9216, None, mtu(9000)), None, "a larger one stays");
        let raised = change(1500, 1500, 9000).and_then(RaisedMtu::made);
        assert_eq!(raised, change(1500, 9000, 9000));
        assert_eq!(raise_mtu(9000, raised, mtu(9000)), raised, "nothing is forgotten");
        assert_eq!(raise_mtu(9000, raised, mtu(4000)), change(1500, 9000, 4000));
        assert_eq!(raise_mtu(9000, raised, mtu(1500)), change(1500, 9000, 1500));
        assert_eq!(change(1500, 9000, 1500).and_then(RaisedMtu::made), None);
        assert_eq!(raise_mtu(2000, raised, mtu(4000)), change(2000, 2000, 4000), "another program's");
        // The daemon ended between the note and the change.
        assert_eq!(raise_mtu(1500, change(1500, 1500, 9000), mtu(9000)), change(1500, 1500, 9000));
        for to in [4000, 1500] {
            assert_eq!(raise_mtu(9000, change(1500, 9000, to), mtu(to)), change(1500, 9000, to));
        }
    }

    #[test]
    fn a_port_has_the_mtu_of_its_vswitch_or_of_its_interface() {
        let name = |text: &str| text.parse::<Name>().unwrap();
        let mut desired = Desired::default();
        desired.vswitches.insert(name("prod"), VSwitchSpec { mtu: mtu(9000), ..VSwitchSpec::default() });
        let group = serde_json::from_value(serde_json::json!({ "vswitch": "prod" })).unwrap();
        desired.portgroups.insert(name("web"), group);
        let netns = serde_json::json!({ "netns": "a", "portgroup": "web" });
        desired.netns.insert(name("a"), serde_json::from_value(netns).unwrap());
        let uplink = serde_json::json!({ "vswitch": "prod" });
        desired.uplinks.insert(name("eth1"), serde_json::from_value(uplink).unwrap());
        desired.numbers = assign_numbers(&desired).unwrap();
        let (uplink, netns) = (Owner::Uplink(name("eth1")), Owner::Netns(name("a")));
        let mut observed = Observed::default();
        let limit = |observed: &Observed, owner| limit_packets(&desired, observed, owner);
        assert_eq!([limit(&observed, &uplink), limit(&observed, &netns)], [Some(9000); 2]);
        let seen = InterfaceSeen { mtu: 1500, ..InterfaceSeen::default() };
        observed.uplinks.insert(name("eth1"), seen);
        assert_eq!(limit(&observed, &uplink), Some(1500));
        assert_eq!(short_interface(&desired, &observed, &uplink), Some(1500));
        assert!(!needs_mtu(&desired, &observed, &uplink), "it is not attached");
        let port: PortId = desired.numbers.port(&uplink).unwrap();
        observed.fabric.ports.insert(port, PortSeen { attached: true, ..PortSeen::default() });
        assert!(needs_mtu(&desired, &observed, &uplink));
        let seen = observed.uplinks.get_mut(&name("eth1")).unwrap();
        (seen.mtu, seen.mtu_for) = (9216, Some(mtu(9000)));
        assert_eq!(limit(&observed, &uplink), Some(9000));
        assert!(!needs_mtu(&desired, &observed, &uplink));
    }
}
