//! State of a port of a vSwitch with snooping.

use std::collections::BTreeSet;
use std::net::IpAddr;

use taut_api::Vlan;

/// Settings of a port on which its memberships depend. A change of them makes the port unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortSetup {
    /// Owner of the port.
    pub owner: String,
    /// VLANs of the port.
    pub vlan: Vlan,
    /// The port takes all frames of its VLANs.
    pub takes_all: bool,
}

/// State of a port. All times are in milliseconds.
#[derive(Debug)]
pub(super) struct PortState {
    pub(super) setup: PortSetup,
    /// Number of the start of its queue; `None` if it receives no frames.
    pub(super) start: Option<u32>,
    /// Time from which it is known what the port has joined; `None` until it was asked.
    pub(super) known_from: Option<u64>,
    /// The port has joined more than is kept: until then it takes all frames.
    pub(super) overflows_until: u64,
    /// The port leads to a router until then.
    pub(super) router_until: u64,
    /// The groups of which it is a member, each with its VLAN.
    pub(super) groups: BTreeSet<(u16, IpAddr)>,
}

impl PortState {
    /// Begins with a port that is not seen yet.
    pub(super) fn new(setup: PortSetup) -> Self {
        Self {
            setup,
            start: None,
            known_from: None,
            overflows_until: 0,
            router_until: 0,
            groups: BTreeSet::new(),
        }
    }

    /// Returns whether the port takes all frames.
    pub(super) fn takes_all(&self, now: u64) -> bool {
        self.setup.takes_all
            || self.known_from.is_none_or(|from| now < from)
            || now < self.overflows_until
            || now < self.router_until
    }
}
