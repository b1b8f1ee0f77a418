//! An interface on a port group against the other documents, and against the uses that the host has
//! for it (VN-15).

use taut_api::netdev::NetdevSpec;
use taut_api::network::VSwitchSpec;
use taut_api::uplink::InterfaceUse;
use taut_api::{ApiError, Name};

use super::documents::{admit_mac, find_portgroup};
use super::mtu::check_mtu;
use super::refusal::{conflict, invalid};
use super::uplinks::{Candidate, check_interface};
use crate::facts::{Desired, Owner};

/// Admits an interface on a port group. `found` is what the host has under its name.
///
/// # Errors
/// When the port group does not exist, the address is missing or belongs to another port, the
/// interface is an uplink or cannot have the MTU of the vSwitch, or [`check_netdev`] fails.
pub fn admit_netdev(
    desired: &Desired,
    name: &Name,
    spec: &NetdevSpec,
    found: Option<&Candidate>,
) -> Result<(), ApiError> {
    check_netdev(name, found)?;
    if desired.uplinks.contains_key(name) {
        return Err(conflict(
            format!("`{name}` is an uplink already"),
            format!("give it back first: taut uplink remove {name}"),
        ));
    }
    let owner = Owner::Netdev(name.clone());
    find_portgroup(desired, &owner, &spec.portgroup)?;
    let vswitch = desired.portgroups.get(&spec.portgroup).map(|group| &group.vswitch);
    let vswitch = vswitch.and_then(|vswitch| desired.vswitches.get_key_value(vswitch));
    if let (Some(found), Some((vswitch, VSwitchSpec { mtu, .. }))) = (found, vswitch) {
        check_mtu(name, found.mtu, vswitch, *mtu)?;
    }
    let Some(mac) = spec.mac else {
        return Err(invalid(
            format!("it is not known which Ethernet address is at the other end of `{name}`"),
            "name it (`--mac`): for a VM of libvirt, `virsh domiflist VM` shows it",
        ));
    };
    admit_mac(desired, &owner, mac)
}

/// Checks that an interface exists, and that the host uses it for nothing but a bridge.
pub fn check_netdev(name: &Name, found: Option<&Candidate>) -> Result<(), ApiError> {
    let is_bridge =
        |used: &InterfaceUse| matches!(used, InterfaceUse::Member { kind, .. } if kind == "bridge");
    let found = found.map(|found| Candidate {
        uses: found.uses.iter().filter(|used| !is_bridge(used)).cloned().collect(),
        ..found.clone()
    });
    check_interface(name, found.as_ref())
}

#[cfg(test)]
mod tests {
    use taut_api::uplink::UplinkSpec;

    use super::*;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    fn found(uses: Vec<InterfaceUse>) -> Candidate {
        Candidate { is_ethernet: true, uses, ..Candidate::default() }
    }

    #[test]
    fn an_interface_may_be_in_a_bridge_and_nothing_else() {
        let member = |kind: &str| InterfaceUse::Member { of: "up0".to_owned(), kind: kind.to_owned() };
        assert_eq!(check_netdev(&name("vnet0"), Some(&found(vec![member("bridge")]))), Ok(()));
        let bond = check_netdev(&name("vnet0"), Some(&found(vec![member("bond")]))).unwrap_err();
        assert!(bond.message.contains("part of the bond"), "{bond}");
        let address = InterfaceUse::Address("10.0.0.5".parse().unwrap());
        let both = check_netdev(&name("vnet0"), Some(&found(vec![member("bridge"), address]))).unwrap_err();
        assert!(both.message.contains("10.0.0.5") && !both.message.contains("bridge"), "{both}");
        assert!(check_netdev(&name("vnet0"), None).is_err());
    }

    #[test]
    fn it_has_a_port_group_and_an_address_of_its_own() {
        let mut desired = Desired::default();
        let group = serde_json::from_value(serde_json::json!({ "vswitch": "prod" })).unwrap();
        desired.portgroups.insert(name("web"), group);
        let mac = "52:54:00:00:00:01".parse().ok();
        let spec = |group: &str, mac| NetdevSpec { portgroup: name(group), mac };
        let admitted = |desired: &Desired, interface: &str, spec: &NetdevSpec| {
            admit_netdev(desired, &name(interface), spec, Some(&found(Vec::new())))
                .map_err(|error| error.message)
        };
        assert_eq!(admitted(&desired, "vnet0", &spec("web", mac)), Ok(()));
        assert!(admitted(&desired, "vnet0", &spec("db", mac)).unwrap_err().contains("port group `db`"));
        assert!(admitted(&desired, "vnet0", &spec("web", None)).unwrap_err().contains("is not known"));
        desired.netdevs.insert(name("vnet0"), spec("web", mac));
        assert_eq!(admitted(&desired, "vnet0", &spec("web", mac)), Ok(()), "it may be written again");
        assert!(
            admitted(&desired, "vnet1", &spec("web", mac)).unwrap_err().contains("belongs to netdev/vnet0")
        );
        desired.uplinks.insert(name("eth1"), UplinkSpec::new(name("prod")));
        assert!(admitted(&desired, "eth1", &spec("web", None)).unwrap_err().contains("is an uplink already"));
    }
}
