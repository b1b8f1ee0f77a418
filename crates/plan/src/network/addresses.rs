//! Addresses that guests' drivers have set (VN-10).

use taut_api::{MacAddr, Name};

use crate::facts::{Desired, Observed, Owner, SetAddress};

/// Returns the address that the guest's driver has set for a card, if it is known. Only QEMU's
/// virtio cards tell it.
pub fn effective_address(observed: &Observed, owner: &Owner) -> Option<SetAddress> {
    let Owner::Nic(vm, index) = owner else { return None };
    observed.process(vm)?.machine.addresses.get(*index).copied().flatten()
}

/// Returns whether a port group rejects this address for a port with this configured one. Then the
/// port receives no frames.
pub fn is_rejected(desired: &Desired, portgroup: &Name, configured: MacAddr, effective: MacAddr) -> bool {
    let rejects = desired.portgroups.get(portgroup).is_some_and(|group| !group.security.mac_changes);
    rejects && effective != configured
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{MachineSeen, Process, VmSeen};
    use crate::network::fabric_config::configure_fabric;
    use crate::network::numbering::assign_numbers;
    use crate::placement::problem::Placement;

    #[test]
    fn the_fabric_and_users_learn_the_address_that_a_driver_has_set() {
        let (name, other): (Name, _) = ("db".parse().unwrap(), MacAddr([2, 0x66, 0, 0, 0, 1]));
        let mut desired = Desired::default();
        let mut group = |name: &str, accepts| {
            let mut group: taut_api::network::PortGroupSpec =
                serde_json::from_str(r#"{"vswitch": "sw"}"#).unwrap();
            group.security.mac_changes = accepts;
            desired.portgroups.insert(name.parse().unwrap(), group);
        };
        group("strict", false);
        group("loose", true);
        let nics = serde_json::json!([
            { "portgroup": "strict" }, { "portgroup": "loose" }, { "portgroup": "strict" },
        ]);
        let vm = serde_json::from_value(serde_json::json!({ "nic": nics, "power": "on" })).unwrap();
        desired.vms.insert(name.clone(), vm);
        desired.numbers = assign_numbers(&desired).unwrap();
        let set = |order| Some(SetAddress { mac: other, order });
        let machine = MachineSeen { addresses: vec![set(7), set(4), None], ..MachineSeen::default() };
        let process = Some(Process { machine, ..Process::default() });
        let vm = VmSeen { process, ..VmSeen::default() };
        let observed = Observed { vms: [(name.clone(), vm)].into(), ..Observed::default() };
        let config = configure_fabric(&desired, &observed, &Placement::default(), None);
        let told: Vec<_> = config.ports.iter().map(|port| (port.effective, port.effective_order)).collect();
        assert_eq!(told, [(Some(other), 7), (Some(other), 4), (None, 0)]);
        let rejected = |group: &str, effective| {
            is_rejected(&desired, &group.parse().unwrap(), MacAddr([2, 0, 0, 0, 0, 1]), effective)
        };
        assert!(rejected("strict", other) && !rejected("loose", other));
        assert!(!rejected("strict", MacAddr([2, 0, 0, 0, 0, 1])), "it is set back");
    }
}
