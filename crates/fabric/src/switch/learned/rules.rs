//! Rules of learning: what a port's configuration permits.

use taut_api::fabric::config::PortConfig;
use taut_api::{MacAddr, Vlan};

/// The rules of one port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rules {
    /// Largest number of addresses.
    pub(super) limit: u32,
    /// Seconds after which a silent address is forgotten.
    pub(super) ageing: u32,
    /// The port that the addresses belong to.
    pub(super) identity: Identity,
}

/// The settings on which learned addresses depend. A change of any of them forgets the addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Identity {
    owner: String,
    mac: MacAddr,
    vlan: Vlan,
    learns: bool,
}

impl Rules {
    /// The rules of a port; `None` if all its addresses are configured.
    pub(super) fn of(config: &PortConfig) -> Option<Self> {
        let (limit, ageing) = match config.mac_learning {
            Some(learning) if config.security.forged_transmits => {
                (u32::from(learning.limit), learning.ageing_s)
            }
            // The old and the new address. An address stays as long as no other replaces it.
            _ if config.security.mac_changes && config.effective.is_none() => (2, u32::MAX),
            _ => return None,
        };
        let identity = Identity {
            owner: config.owner.clone(),
            mac: config.mac,
            vlan: config.vlan.clone(),
            learns: config.mac_learning.is_some(),
        };
        Some(Self { limit, ageing, identity })
    }
}
