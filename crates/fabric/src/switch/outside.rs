//! The outside of a segment: its uplinks, and which of them each port uses (row VN-3).
//!
//! The control thread settles the teams whenever a link changes, and puts the result into force as
//! a new switch. A frame needs no more than a look at its member.

use std::collections::BTreeMap;
use std::sync::Arc;

use taut_api::fabric::PortId;
#[cfg(test)]
use taut_api::fabric::config::{PortConfig, PortKind};
#[cfg(test)]
use taut_uplink::team::Order;
use taut_uplink::team::{
    Expected, MOST_UPLINKS, Path, Policy, Proof, Team, Uplink, address_key, ip_key, mac_key,
};

use super::heard::Heard;
use super::index::MemberIdx;
use crate::net::ethernet::{Ethernet, MacKey, TAG};

/// Uplinks of a segment, and what its ports use of them.
#[derive(Debug, Clone, Default)]
pub struct Outside {
    /// Number of each uplink.
    pub uplinks: BTreeMap<PortId, Uplink>,
    /// Teams of the segment.
    pub teams: Vec<Settled>,
    /// Way of each port to the outside.
    pub ways: BTreeMap<PortId, Way>,
    /// Proofs of their paths that the uplinks wait for.
    pub expected: Expected,
    /// IP addresses of ports, which are announced with them.
    pub heard: Arc<Heard>,
}

#[cfg(test)]
impl Outside {
    /// Returns a team of all uplinks, by port, as it is settled while all of them have a link. All
    /// other ports use it.
    pub fn of_one_team(configs: &[PortConfig]) -> Self {
        let (uplinks, ports): (Vec<_>, Vec<_>) =
            configs.iter().partition(|config| config.kind == PortKind::Uplink);
        let ids = uplinks.into_iter().map(|config| config.id);
        let uplinks: BTreeMap<_, _> = ids.zip((0..).map_while(Uplink::new)).collect();
        let order = Order { active: uplinks.values().copied().collect(), standby: Vec::new() };
        let mut team = Team::new(Policy::PortId, order, true);
        team.settle(uplinks.values().copied().collect());
        let way = |config: &PortConfig| {
            let mut path = Path::default();
            path.use_uplink(team.uplink(config.id.0.into()));
            (config.id, Way { team: 0, path })
        };
        let ways = ports.into_iter().map(way).collect();
        Self { uplinks, teams: vec![Settled { now: team, former: None }], ways, ..Self::default() }
    }
}

/// A team as it is settled.
#[derive(Debug, Clone, Default)]
pub struct Settled {
    /// The team.
    pub now: Team,
    /// The same team until a moment ago: frames are still under way.
    pub former: Option<Team>,
}

/// Uplink that a port uses, and the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Way {
    /// Place of its team in [`Outside::teams`].
    pub team: usize,
    /// Uplink that the port uses, under policies that choose by port.
    pub path: Path,
}

/// Uplinks and teams of a segment, with its members instead of ports.
#[derive(Debug, Default)]
pub(super) struct UplinkTable {
    /// Member of each uplink, by number.
    members: Vec<MemberIdx>,
    teams: Vec<Settled>,
    expected: Expected,
    heard: Arc<Heard>,
}

impl UplinkTable {
    /// Resolves ports to members.
    pub(super) fn new(outside: &Outside, member: impl Fn(PortId) -> Option<MemberIdx>) -> Self {
        let mut members = vec![MemberIdx::NONE; usize::from(MOST_UPLINKS)];
        for (port, uplink) in &outside.uplinks {
            members[usize::from(uplink.number())] = member(*port).unwrap_or(MemberIdx::NONE);
        }
        if outside.uplinks.is_empty() {
            members = Vec::new();
        }
        Self {
            members,
            teams: outside.teams.clone(),
            expected: outside.expected.clone(),
            heard: Arc::clone(&outside.heard),
        }
    }

    /// Returns whether the segment has an uplink.
    #[inline]
    pub(super) fn any(&self) -> bool {
        !self.members.is_empty()
    }

    /// Returns the uplinks.
    pub(super) fn members(&self) -> impl Iterator<Item = MemberIdx> {
        self.members.iter().copied().filter(|member| *member != MemberIdx::NONE)
    }

    /// Returns the IP addresses of ports.
    pub(super) fn heard(&self) -> &Heard {
        &self.heard
    }

    /// Returns what a frame in a VLAN proves for an uplink whose card has the address `card`.
    #[inline]
    pub(super) fn proof(
        &self,
        uplink: Uplink,
        card: MacKey,
        vlan: u16,
        frame: &Ethernet,
        head: &[u8],
    ) -> Option<Proof> {
        let is_to_card = frame.dst == card;
        if !self.expected.may_be_proof(frame.ether_type, is_to_card) {
            return None;
        }
        let tag = if frame.tag.is_some() { TAG } else { 0 };
        self.expected.proof(uplink, vlan, is_to_card, head, tag)
    }

    /// Returns the uplink for a frame that begins with `start`, from a port with this way; `None`
    /// if its team has no uplink with a link.
    pub(super) fn choose(&self, way: Way, start: &[u8]) -> Option<MemberIdx> {
        let team = &self.teams.get(way.team)?.now;
        let uplink = match team.policy() {
            Policy::SourceMac => team.uplink(mac_key(start)),
            Policy::IpHash => team.uplink(ip_key(start)),
            Policy::PortId | Policy::Explicit | Policy::Load => way.path.uplink(),
        };
        let member = *self.members.get(usize::from(uplink?.number()))?;
        (member != MemberIdx::NONE).then_some(member)
    }

    /// Returns whether a port takes a frame for `to` that arrived at an uplink. `own` is the port's
    /// configured address.
    pub(super) fn takes(&self, way: Way, arrived: Uplink, to: MacKey, own: MacKey) -> bool {
        let Some(Settled { now, former }) = self.teams.get(way.team) else { return false };
        let is_to_own = !to.is_multicast();
        if now.policy() != Policy::SourceMac {
            // The control thread removes a former uplink when its time is over.
            return way.path.takes(now, arrived, is_to_own);
        }
        let key = address_key(if is_to_own { to } else { own }.octets());
        let leads = |team: &Team| team.uplink(key) == Some(arrived);
        leads(now) || is_to_own && former.as_ref().is_some_and(leads)
    }
}
