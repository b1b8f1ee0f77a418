//! A member of a segment: a port as the switch sees it, with the settings of its port group.

use std::sync::Arc;

use taut_api::direction::Directions;
use taut_api::fabric::config::{PortConfig, PortKind};
use taut_api::network::Security;
use taut_uplink::team::Uplink;

use super::index::MemberIdx;
use super::mac_table::Key;
use super::outside::{Outside, Way};
use super::vlan::PortVlan;
use crate::net::ethernet::{HEADER, MAX_FRAME, MacKey};
use crate::port::Port;
use crate::port::capture::Captures;

/// A port on a segment.
#[derive(Debug)]
pub struct Member {
    /// The port.
    pub port: Arc<Port>,
    /// The configured address.
    pub mac: MacKey,
    /// The port's VLANs.
    pub vlan: PortVlan,
    /// The security policy of its port group.
    pub security: Security,
    /// Merge TCP segments for the port, if its guest accepts merged frames.
    pub lro: bool,
    /// The source of the address that the port has.
    pub(super) address_by: AddressBy,
    /// The port receives no frame: its guest has changed its address, which the policy rejects.
    pub cut_off: bool,
    /// Bytes of the longest packet that the port sends and receives, without the Ethernet header
    /// and a tag.
    pub mtu: usize,
    /// Learn addresses behind the port, if it may send from them.
    mac_learning: bool,
    /// Number of the uplink, if the port leads outside. Uplinks have all addresses that no other
    /// member has.
    pub uplink: Option<Uplink>,
    /// Address of the uplink's card, which answers to probes are for.
    pub card: MacKey,
    /// Way of the port to the outside.
    pub(super) way: Option<Way>,
    /// Captures of the port's frames.
    pub captures: Captures,
    /// Members that get copies of the port's frames.
    pub mirrors: Vec<Mirror>,
    /// The port's frames are captured or copied.
    pub(super) is_watched: bool,
}

/// A member that gets copies of the frames of another.
#[derive(Debug, Clone, Copy)]
pub struct Mirror {
    /// The member that gets the copies.
    pub to: MemberIdx,
    /// Frames that are copied.
    pub directions: Directions,
}

/// The source of the address that a port has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AddressBy {
    /// The configuration.
    Configuration,
    /// The guest's driver: the address is known, and accepted. The port has this one, which is the
    /// configured one if it must not have the other ([`super::addresses::set_addresses`]). It is
    /// not read from [`Port::address`], which a worker with an earlier switch may still change.
    Driver(MacKey),
    /// The source address of the port's last frame: what the driver has set is not known, and would
    /// be accepted. [`Port::address`] has the address.
    Frames,
}

/// The configured address of an uplink: no frame has it.
const NO_ADDRESS: MacKey = MacKey(u64::MAX);

impl Member {
    /// Makes a port a member of its segment.
    pub(super) fn new(config: &PortConfig, port: &Arc<Port>, outside: &Outside) -> Self {
        let is_uplink = config.kind == PortKind::Uplink;
        let Security { mac_changes, forged_transmits, .. } = config.security;
        let learns = config.mac_learning.is_some() && forged_transmits;
        let address_by = match config.effective {
            _ if !mac_changes || learns => AddressBy::Configuration,
            Some(_) => AddressBy::Driver(config.mac.into()),
            None => AddressBy::Frames,
        };
        let member = Self {
            port: Arc::clone(port),
            mac: if is_uplink { NO_ADDRESS } else { config.mac.into() },
            vlan: PortVlan::from(&config.vlan),
            security: config.security,
            lro: config.lro,
            address_by,
            cut_off: config.is_cut_off(),
            mtu: config.mtu.map_or(MAX_FRAME - HEADER, usize::from),
            mac_learning: config.mac_learning.is_some(),
            uplink: outside.uplinks.get(&config.id).copied().filter(|_| is_uplink),
            card: if is_uplink { config.mac.into() } else { NO_ADDRESS },
            way: outside.ways.get(&config.id).copied().filter(|_| !is_uplink),
            captures: port.captures(),
            mirrors: Vec::new(),
            is_watched: false,
        };
        if member.address_by == AddressBy::Configuration {
            port.address.reset();
        }
        member
    }

    /// Tells whether the port's frames are captured or copied, so that each of them goes by itself.
    #[inline]
    pub fn is_watched(&self) -> bool {
        cfg!(not(feature = "without-captures")) && self.is_watched
    }

    /// Tells whether addresses behind the port are learned.
    #[inline]
    pub fn learns(&self) -> bool {
        self.mac_learning && self.security.forged_transmits
    }

    /// The source of the address that the port has.
    #[inline]
    pub(super) fn address_by(&self) -> AddressBy {
        self.address_by
    }

    /// Tells whether the port has this address now.
    #[inline]
    pub(super) fn has_address(&self, mac: MacKey) -> bool {
        match self.address_by {
            AddressBy::Configuration => mac == self.mac,
            AddressBy::Driver(own) => mac == own,
            AddressBy::Frames => self.port.address.is(mac, self.mac),
        }
    }

    /// The key under which an address of the port is in the table.
    pub(super) fn table_key(&self, mac: MacKey) -> Key {
        self.access_vlan().map_or(Key::everywhere(mac), |vlan| Key::new(vlan, mac))
    }

    /// The key under which an address of the port is learned.
    pub(super) fn key(&self, vlan: u16, mac: MacKey) -> Key {
        if self.vlan.is_trunk() { Key::everywhere(mac) } else { Key::new(vlan, mac) }
    }

    /// The VLAN of the port; `None` for a trunk.
    pub(super) const fn access_vlan(&self) -> Option<u16> {
        match self.vlan {
            PortVlan::Access(vlan) => Some(vlan),
            PortVlan::Trunk(_) => None,
        }
    }
}

/// Returns the members that get copies of a port's frames.
pub(super) fn mirrors(config: &PortConfig, ports: &[(&PortConfig, &Arc<Port>)]) -> Vec<Mirror> {
    let resolved = config.mirrors.iter().filter_map(|mirror| {
        let takes = |(other, _): &(&PortConfig, &Arc<Port>)| {
            other.id == mirror.to && other.id != config.id && other.kind != PortKind::Uplink
        };
        let to = MemberIdx(ports.iter().position(takes)? as u32);
        Some(Mirror { to, directions: mirror.directions })
    });
    resolved.collect()
}
