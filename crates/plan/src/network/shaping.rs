//! Traffic shaping of each port: that of its card, or its port group's (VN-4).

use taut_api::Name;
use taut_api::shaping::{OwnShaping, PortShaping};

use crate::facts::{Desired, Owner};

/// The shaping of the owner's port in this port group, with its origin. Only cards of VMs have a
/// shaping of their own.
pub fn choose_shaping(desired: &Desired, owner: &Owner, portgroup: &Name) -> PortShaping {
    let group = desired.portgroups.get(portgroup).map(|group| group.shaping).unwrap_or_default();
    own(desired, owner).unwrap_or_default().beside(&group)
}

fn own(desired: &Desired, owner: &Owner) -> Option<OwnShaping> {
    let Owner::Nic(name, index) = owner else { return None };
    Some(desired.vms.get(name)?.vm.nics.get(*index)?.shaping)
}

#[cfg(test)]
mod tests {
    use taut_api::vm::VmDesired;

    use super::*;

    #[test]
    fn a_card_replaces_its_port_groups_shaping_direction_by_direction() {
        let name = |text: &str| text.parse::<Name>().unwrap();
        let group = serde_json::json!({ "vswitch": "sw",
            "shaping": { "to_guest": { "average": "1kbit" }, "to_switch": { "average": "2kbit" } } });
        let nics = serde_json::json!([
            { "portgroup": "lan" },
            { "portgroup": "lan", "shaping": { "to_guest": { "average": "3kbit" } } },
            { "portgroup": "lan", "shaping": { "to_switch": "off" } },
        ]);
        let vm: VmDesired = serde_json::from_value(serde_json::json!({ "nic": nics })).unwrap();
        let desired = Desired {
            portgroups: [(name("lan"), serde_json::from_value(group).unwrap())].into(),
            vms: [(name("db"), vm)].into(),
            ..Desired::default()
        };
        let of = |owner: &Owner| {
            let PortShaping { to_switch, to_guest } = choose_shaping(&desired, owner, &name("lan"));
            [to_switch.to_string(), to_guest.to_string()]
        };
        let card = |index| of(&Owner::Nic(name("db"), index));
        assert_eq!(card(0), ["2kbit (port group)", "1kbit (port group)"]);
        assert_eq!(card(1), ["2kbit (port group)", "3kbit (own)"]);
        assert_eq!(card(2), ["none (own)", "1kbit (port group)"]);
        assert_eq!(of(&Owner::Netns(name("probe"))), card(0));
    }
}
