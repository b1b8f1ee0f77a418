//! Ports of uplinks (VN-3): a vSwitch reaches outside through them.

use taut_api::fabric::config::{PortConfig, PortKind};
use taut_api::vlan::Vlan;

use super::mtu::limit_packets;
use crate::facts::{Desired, Observed, Owner};

/// Bit/s of 1 Mbit/s.
const MBIT: u64 = 1_000_000;

/// Configures the port of each uplink. It carries all VLANs, each with its tag; frames of port
/// groups without a VLAN have none.
pub fn configure_uplinks(desired: &Desired, observed: &Observed) -> impl Iterator<Item = PortConfig> {
    desired.uplinks.iter().filter_map(|(name, uplink)| {
        let owner = Owner::Uplink(name.clone());
        let (port, segment) = (desired.numbers.port(&owner)?, desired.numbers.segment(&uplink.vswitch)?);
        let seen = observed.uplinks.get(name);
        let mac = seen.and_then(|seen| seen.mac).unwrap_or_else(|| owner.derived_mac());
        let speed = seen.and_then(|seen| seen.speed_mbit);
        Some(PortConfig {
            vlan: Vlan::all(),
            mtu: limit_packets(desired, observed, &owner),
            speed: speed.map(|speed| speed.saturating_mul(MBIT)),
            ..PortConfig::new(port, owner.to_string(), PortKind::Uplink, segment, mac)
        })
    })
}
