//! Ports of uplinks (VN-3): a vSwitch reaches outside through them.

use taut_api::Coalescing;
use taut_api::fabric::config::{FrontEndRules, PortConfig, PortKind};
use taut_api::network::Security;
use taut_api::shaping::Shaping;
use taut_api::vlan::Vlan;

use crate::facts::{Desired, Owner};

/// Configures the port of each uplink. It carries all VLANs, each with its tag; frames of port
/// groups without a VLAN have none.
pub fn configure_uplinks(desired: &Desired) -> impl Iterator<Item = PortConfig> {
    desired.uplinks.iter().filter_map(|(name, uplink)| {
        let owner = Owner::Uplink(name.clone());
        Some(PortConfig {
            id: desired.numbers.port(&owner)?,
            owner: owner.to_string(),
            kind: PortKind::Uplink,
            segment: desired.numbers.segment(&uplink.vswitch)?,
            vlan: Vlan::all(),
            mac: owner.derived_mac(),
            security: Security::default(),
            shaping: Shaping::default(),
            mac_learning: None,
            coalescing: Coalescing::Disabled,
            lro: false,
            front_end: FrontEndRules::default(),
            team: None,
        })
    })
}
