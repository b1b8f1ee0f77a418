//! The uplinks and teams of one vSwitch, and the uplink of each of its ports.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use taut_api::fabric::config::{PortConfig, PortId, PortKind, SegmentId, TeamConfig};
use taut_api::teaming::TeamPolicy;
use taut_api::{PathProbe, Vlan};
use taut_uplink::team::{
    Expected, FORMER_NS, INTERVAL_NS, IpPlace, Links, MOST_UPLINKS, Move, Order, Path, Policy, Sender, Team,
    Uplink, address_key,
};
use tracing::info;

use super::announcing::{Announcement, Announcing};
use super::balance::{Balance, Place};
use super::probing::Probing;
use super::vlans::first_vlans_of_all;
use super::{OwnFrame, Sight};
use crate::switch::outside::{Outside, Settled, Way};

/// Uplinks and teams of a segment.
#[derive(Debug, Default)]
pub(super) struct SegmentTeams {
    uplinks: BTreeMap<PortId, Card>,
    links: Links,
    /// The teams by their places in the configuration.
    teams: BTreeMap<u16, TeamState>,
    ways: BTreeMap<PortId, PortWay>,
    announcing: Announcing,
    /// Ports that have another uplink than before.
    pub(super) moved: BTreeSet<PortId>,
    balance: Balance,
    /// Time of the next probes.
    next_probe: u64,
}

/// Card of an uplink.
#[derive(Debug, Clone, Copy)]
struct Card {
    uplink: Uplink,
    mac: [u8; 6],
    /// Speed of its link in bit/s, if it is known.
    speed: Option<u64>,
}

/// A team with its configuration, and with the numbers of the uplinks in that.
#[derive(Debug, Clone)]
struct TeamState {
    config: TeamConfig,
    order: Order,
    team: Team,
    /// The team before its last change, and the end of the time in which frames are under way.
    former: Option<(Team, u64)>,
    probing: Probing,
}

/// Way of a port to the outside.
#[derive(Debug, Clone, Copy)]
struct PortWay {
    team: u16,
    /// Configured address of the port.
    mac: [u8; 6],
    /// IP address from the port's document, if it is known in which VLAN the port has it.
    ip: Option<IpPlace>,
    path: Path,
    /// Uplink to which the port was moved because another one was busy. It is used as long as the
    /// team uses it.
    moved_to: Option<Uplink>,
    /// Number of the start of its first queue; `None` if the port receives no frames.
    start: Option<u32>,
}

impl SegmentTeams {
    /// Gives each uplink a number. Known ones keep theirs. A new one has a link until it is seen
    /// that it has none.
    pub(super) fn number_uplinks(&mut self, ports: &[&PortConfig], now: u64) {
        let wanted = || ports.iter().filter(|port| port.kind == PortKind::Uplink);
        let before: Vec<Uplink> = self.uplinks.values().map(|card| card.uplink).collect();
        for (port, card) in std::mem::take(&mut self.uplinks) {
            if wanted().any(|wanted| wanted.id == port) {
                self.uplinks.insert(port, card);
            } else {
                self.links.remove(card.uplink);
            }
        }
        for config in wanted() {
            let is_taken = |uplink: &Uplink| self.uplinks.values().any(|card| card.uplink == *uplink);
            let all = || (0..MOST_UPLINKS).filter_map(Uplink::new).filter(|uplink| !is_taken(uplink));
            // A port that used another uplink with this number would not notice the change.
            let free = all().find(|uplink| !before.contains(uplink)).or_else(|| all().next());
            let known = self.uplinks.get(&config.id).map(|card| card.uplink);
            if let Some(uplink) = known.or(free) {
                let card = Card { uplink, mac: config.mac.0, speed: config.speed };
                self.uplinks.insert(config.id, card);
                if known.is_none() {
                    self.links.seen(uplink, true, now);
                }
            }
        }
    }

    /// Forms the teams. `ports` has all ports of the segment.
    pub(super) fn form_teams<'c>(
        &mut self,
        wanted: impl Iterator<Item = (u16, &'c TeamConfig)>,
        ports: &[&PortConfig],
        now: u64,
    ) {
        // Places shift when another team comes or goes: the same team is one with the same rules.
        let before = std::mem::take(&mut self.teams);
        for (place, config) in wanted {
            let order = self.order(config);
            let is_same = |member: &&TeamState| {
                let rules = |config: &TeamConfig| (config.policy, config.failback, config.probe);
                rules(&member.config) == rules(config) && member.order == order
            };
            let mut state = if let Some(same) = before.values().find(is_same) {
                TeamState { config: config.clone(), ..same.clone() }
            } else {
                let team = Team::new(policy(config.policy), order.clone(), config.failback);
                let others: Vec<_> = before.values().map(|other| &other.probing).collect();
                let probing = Probing::new(config.probe, team.listed(), &others, now);
                TeamState { config: config.clone(), order, team, former: None, probing }
            };
            let own = ports.iter().filter(|port| port.team == Some(place));
            state.probing.send_in(first_vlans_of_all(own.map(|port| &port.vlan)));
            self.teams.insert(place, state);
        }
    }

    fn order(&self, config: &TeamConfig) -> Order {
        let numbers = |ports: &[PortId]| {
            ports.iter().filter_map(|port| self.uplinks.get(port).map(|card| card.uplink)).collect()
        };
        Order { active: numbers(&config.active), standby: numbers(&config.standby) }
    }

    /// Gives each port of a team its way.
    pub(super) fn give_ways(&mut self, ports: &[&PortConfig]) {
        let before = std::mem::take(&mut self.ways);
        let way = |port: &&PortConfig| {
            let (team, mac, ip) = (port.team?, port.mac.0, configured_ip(port));
            let new = PortWay { team, mac, ip, path: Path::default(), moved_to: None, start: None };
            Some((port.id, PortWay { team, mac, ip, ..before.get(&port.id).copied().unwrap_or(new) }))
        };
        self.ways = ports.iter().filter_map(way).collect();
        for port in before.keys().filter(|port| !self.ways.contains_key(port)) {
            self.announcing.forget(*port);
        }
    }

    /// Notes what is seen of the links.
    pub(super) fn see_links(&mut self, sight: &impl Sight, now: u64) {
        for (port, card) in &self.uplinks {
            if let Some(has_link) = sight.has_link(*port) {
                self.links.seen(card.uplink, has_link, now);
            }
        }
    }

    /// Notes ports that begin or end to receive, or do both between two looks.
    pub(super) fn see_ports(&mut self, sight: &impl Sight) {
        for (port, way) in &mut self.ways {
            let before = std::mem::replace(&mut way.start, sight.first_start(*port));
            if before == way.start {
                continue;
            }
            if before.is_some() {
                // Another guest may be there: it has not stated these addresses.
                self.announcing.forget(*port);
            }
            if way.start.is_some() && way.path.uplink().is_some() {
                self.announcing.add(*port);
            }
        }
    }

    /// Notes which uplinks have proved their paths.
    pub(super) fn hear(&mut self, sight: &impl Sight, now: u64) {
        for (port, card) in &self.uplinks {
            for proof in sight.proofs(*port) {
                for TeamState { probing, .. } in self.teams.values_mut() {
                    probing.hear(card.uplink, proof, now);
                }
            }
        }
    }

    /// Returns the probes that are sent now: each uplink of a team that has a link sends one in
    /// each VLAN.
    pub(super) fn probe(&mut self, process: u64, id: SegmentId, now: u64) -> Vec<OwnFrame> {
        if now < self.next_probe {
            return Vec::new();
        }
        self.next_probe = now.saturating_add(INTERVAL_NS);
        let mut sent = BTreeSet::new();
        let mut frames = Vec::new();
        for TeamState { team, probing, .. } in self.teams.values() {
            for (port, Card { uplink, mac, .. }) in &self.uplinks {
                if !team.listed().contains(*uplink) || !self.links.is_up(*uplink) {
                    continue;
                }
                let own = Sender { process, segment: id.0, uplink: *uplink };
                for vlan in probing.vlans() {
                    let Some(frame) = probing.frame(*mac, own) else { continue };
                    // Several teams may probe the same.
                    if sent.insert((*port, vlan, frame.clone())) {
                        frames.push(OwnFrame { uplink: *port, vlan, frame });
                    }
                }
            }
        }
        frames
    }

    /// Returns uplinks that have a link but no path for one of the teams.
    pub(super) fn without_path(&self) -> impl Iterator<Item = PortId> {
        let is_lost = |uplink| self.teams.values().any(|state| state.probing.without_path().contains(uplink));
        self.uplinks.iter().filter(move |(_, card)| is_lost(card.uplink)).map(|(port, _)| *port)
    }

    /// Moves a port away from a busy uplink, if a team balances loads. Returns whether it did.
    pub(super) fn balance(&mut self, sight: &impl Sight, now: u64) -> bool {
        if !self.balance.is_due(now) {
            return false;
        }
        let balanced = |team: u16| self.teams.get(&team).filter(|state| state.team.policy() == Policy::Load);
        let place = |(port, way): (&PortId, &PortWay)| {
            Some((*port, Place { at: way.path.uplink()?, may_use: balanced(way.team)?.team.used() }))
        };
        let ports: BTreeMap<_, _> = self.ways.iter().filter_map(place).collect();
        if ports.is_empty() {
            return false;
        }
        let known = |(port, card): (&PortId, &Card)| Some((*port, (card.uplink, card.speed?)));
        let uplinks = self.uplinks.iter().filter_map(known).collect();
        let Some(Move { port, from, to }) = self.balance.look(&ports, &uplinks, |id| sight.used(id), now)
        else {
            return false;
        };
        info!(port = port.0, from = from.number(), to = to.number(), "a port leaves a busy uplink");
        if let Some(way) = self.ways.get_mut(&port) {
            way.moved_to = Some(to);
        }
        true
    }

    /// Chooses the uplinks of teams and ports again. Returns whether anything has changed.
    pub(super) fn settle(&mut self, now: u64) -> bool {
        let mut changed = false;
        for TeamState { config, team, former, probing, .. } in self.teams.values_mut() {
            let before = team.clone();
            team.settle(probing.with_path(self.links.usable(team.listed(), now), now));
            if *team != before {
                info!(segment = config.segment.0, uplinks = ?team.used(), "a team uses other uplinks");
                *former =
                    Some((before, now.saturating_add(FORMER_NS))).filter(|(team, _)| !team.used().is_empty());
                changed = true;
            }
        }
        for (port, way) in &mut self.ways {
            let Some(TeamState { config, team, .. }) = self.teams.get(&way.team) else { continue };
            way.moved_to =
                way.moved_to.filter(|to| team.policy() == Policy::Load && team.listed().contains(*to));
            let uplink = uplink_of(*port, way, team);
            changed |= uplink != way.path.uplink();
            if uplink.is_some() && way.path.uplink().is_none() {
                // While the port had no uplink, a station outside may have taken its addresses.
                self.announcing.forget_ips(*port);
            }
            // Switches that are not told learn it from the port's own frames; until then they send
            // to the former uplink.
            if way.path.use_uplink(uplink) && config.notify_switches && way.start.is_some() {
                self.announcing.add(*port);
                self.moved.insert(*port);
            }
        }
        changed
    }

    /// Forgets former uplinks whose time is over. Returns whether there was one.
    pub(super) fn expire(&mut self, now: u64) -> bool {
        let mut changed = false;
        for TeamState { former, .. } in self.teams.values_mut() {
            changed |= former.take_if(|(_, until)| *until <= now).is_some();
        }
        for way in self.ways.values_mut() {
            changed |= way.path.expire(now);
        }
        changed
    }

    /// Returns what is announced now.
    pub(super) fn announce(&mut self, now: u64) -> Vec<Announcement> {
        let Self { announcing, ways, teams, uplinks, .. } = self;
        announcing.take(now, |port| {
            let way = ways.get(&port).filter(|way| way.start.is_some())?;
            teams.get(&way.team).filter(|member| member.config.notify_switches)?;
            let uplink = uplinks.iter().find(|(_, card)| Some(card.uplink) == way.path.uplink());
            uplink.map(|(uplink, _)| (*uplink, way.ip))
        })
    }

    /// Returns when [`Self::announce`] has more.
    pub(super) fn next_announcement(&self) -> Option<u64> {
        self.announcing.next()
    }

    /// Notes that a port was announced.
    pub(super) fn told(&mut self, port: PortId, now: u64) {
        if let Some(way) = self.ways.get_mut(&port) {
            way.path.told(now);
        }
    }

    /// Returns the outside of the segment for the switch.
    ///
    /// `own` has the numbers of the process and of the segment.
    pub(super) fn outside(&self, own: (u64, u16)) -> Outside {
        let places: BTreeMap<u16, usize> = self.teams.keys().copied().zip(0..).collect();
        let way = |(port, way): (&PortId, &PortWay)| {
            Some((*port, Way { team: *places.get(&way.team)?, path: way.path }))
        };
        let settled = |member: &TeamState| Settled {
            now: member.team.clone(),
            former: member.former.as_ref().map(|(team, _)| team.clone()),
        };
        Outside {
            uplinks: self.uplinks.iter().map(|(port, card)| (*port, card.uplink)).collect(),
            teams: self.teams.values().map(settled).collect(),
            ways: self.ways.iter().filter_map(way).collect(),
            expected: self.expected(own),
            heard: Arc::clone(self.announcing.heard()),
        }
    }

    /// Returns the proofs that the teams wait for.
    fn expected(&self, own: (u64, u16)) -> Expected {
        let mut expected = Expected::default();
        for TeamState { config, .. } in self.teams.values() {
            match config.probe {
                PathProbe::Off => {}
                PathProbe::Beacon => expected.beacons = Some(own),
                PathProbe::Gateway { ip, vlan } => drop(expected.gateways.insert((vlan, ip))),
            }
        }
        expected
    }
}

/// Returns the IP address from a port's document. On a trunk it is not known in which VLAN the
/// guest has it.
fn configured_ip(port: &PortConfig) -> Option<IpPlace> {
    match port.vlan {
        Vlan::Access(vlan) => port.ip.map(|ip| (vlan, IpAddr::V4(ip))),
        Vlan::Trunk(_) => None,
    }
}

/// Returns the uplink of a port by the rule of its team.
fn uplink_of(port: PortId, way: &PortWay, team: &Team) -> Option<Uplink> {
    match (team.policy(), way.moved_to) {
        (Policy::Load, Some(to)) if team.used().contains(to) => Some(to),
        (Policy::SourceMac, _) => team.uplink(address_key(way.mac)),
        _ => team.uplink(port.0.into()),
    }
}

fn policy(policy: TeamPolicy) -> Policy {
    match policy {
        TeamPolicy::PortId => Policy::PortId,
        TeamPolicy::SourceMac => Policy::SourceMac,
        TeamPolicy::IpHash => Policy::IpHash,
        TeamPolicy::Explicit => Policy::Explicit,
        TeamPolicy::Load => Policy::Load,
    }
}
