//! Teams of uplinks: which uplinks have a link, and which one each port uses (row VN-3).
//!
//! The fabric looks at the links itself, so a port changes its uplink also while `tautd` is dead.
//! The rules are those of `taut_uplink::team`; here they meet ports and the clock.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use taut_api::fabric::FabricConfig;
use taut_api::fabric::config::{PortId, PortKind, SegmentId, TeamConfig};
use taut_api::teaming::TeamPolicy;
use taut_uplink::team::{
    Announcements, FORMER_NS, Links, MOST_UPLINKS, Order, Path, Policy, Team, Uplink, address_key,
};
use tracing::info;

use crate::switch::outside::{Outside, Settled, Way};
use crate::sys::carrier;

/// Time between two looks at the links.
pub(super) const LOOK: Duration = carrier::INTERVAL;

/// The teams of all segments with uplinks.
#[derive(Debug)]
pub(super) struct Teams {
    /// The point in time from which the rules count.
    epoch: Instant,
    segments: BTreeMap<SegmentId, SegmentTeams>,
}

/// Uplinks and teams of a segment.
#[derive(Debug, Default)]
struct SegmentTeams {
    uplinks: BTreeMap<PortId, Uplink>,
    links: Links,
    /// The teams by their places in the configuration.
    teams: BTreeMap<u16, TeamState>,
    ways: BTreeMap<PortId, PortWay>,
    /// Ports whose place physical switches have to be told.
    announcements: Announcements<PortId>,
}

/// A team with its configuration, and with the numbers of the uplinks in that.
#[derive(Debug)]
struct TeamState {
    config: TeamConfig,
    order: Order,
    team: Team,
    /// The team before its last change, and the end of the time in which frames are under way.
    former: Option<(Team, u64)>,
}

/// Way of a port to the outside.
#[derive(Debug, Clone, Copy)]
struct PortWay {
    team: u16,
    /// Configured address of the port.
    mac: [u8; 6],
    path: Path,
    /// The port receives frames: a guest has started its rings, or a device is attached.
    receives: bool,
}

impl Default for Teams {
    fn default() -> Self {
        Self { epoch: Instant::now(), segments: BTreeMap::new() }
    }
}

impl Teams {
    /// Returns whether there is nothing to look at.
    pub(super) fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Takes over a configuration whose ports were checked. What is the same as before keeps its
    /// state.
    pub(super) fn configure(
        &mut self,
        config: &FabricConfig,
        is_valid: impl Fn(PortId) -> bool,
        now: Instant,
    ) {
        let now = self.since_epoch(now);
        let mut before = std::mem::take(&mut self.segments);
        let ports = || config.ports.iter().filter(|port| is_valid(port.id));
        for uplink in ports().filter(|port| port.kind == PortKind::Uplink) {
            let id = uplink.segment;
            let segment = before.remove(&id).unwrap_or_default();
            self.segments.entry(id).or_insert(segment);
        }
        for (id, segment) in &mut self.segments {
            let of_segment = || ports().filter(|port| port.segment == *id);
            let uplinks = of_segment().filter(|port| port.kind == PortKind::Uplink).map(|port| port.id);
            segment.number_uplinks(uplinks.collect(), now);
            segment.form_teams((0..).zip(&config.teams).filter(|(_, team)| team.segment == *id));
            let ways = of_segment().filter_map(|port| Some((port.id, (port.team?, port.mac.0))));
            segment.give_ways(ways.collect());
            segment.settle(now);
        }
    }

    /// Notes what is seen of the links, and of ports that begin or end to receive. Returns whether
    /// the switch has to change.
    pub(super) fn look(
        &mut self,
        has_link: impl Fn(PortId) -> Option<bool>,
        receives: impl Fn(PortId) -> bool,
        now: Instant,
    ) -> bool {
        let now = self.since_epoch(now);
        let mut changed = false;
        for segment in self.segments.values_mut() {
            for (port, uplink) in &segment.uplinks {
                if let Some(has_link) = has_link(*port) {
                    segment.links.seen(*uplink, has_link, now);
                }
            }
            for (port, way) in &mut segment.ways {
                let before = std::mem::replace(&mut way.receives, receives(*port));
                if way.receives && !before && way.path.uplink().is_some() {
                    segment.announcements.add(*port);
                }
            }
            changed |= segment.settle(now) | segment.expire(now);
        }
        changed
    }

    /// Returns ports that are announced now, each with its uplink.
    pub(super) fn announce(&mut self, now: Instant) -> Vec<(PortId, PortId)> {
        let now = self.since_epoch(now);
        self.segments.values_mut().flat_map(|segment| segment.announce(now)).collect()
    }

    /// Notes that a port was announced.
    pub(super) fn told(&mut self, port: PortId, now: Instant) {
        let now = self.since_epoch(now);
        for way in self.segments.values_mut().filter_map(|segment| segment.ways.get_mut(&port)) {
            way.path.told(now);
        }
    }

    /// Returns when [`Self::announce`] has more.
    pub(super) fn next_announcement(&self) -> Option<Instant> {
        let next = self.segments.values().filter_map(|segment| segment.announcements.next()).min();
        next.map(|at| self.epoch + Duration::from_nanos(at))
    }

    /// Returns the outside of each segment for the switch.
    pub(super) fn outsides(&self) -> BTreeMap<SegmentId, Outside> {
        self.segments.iter().map(|(id, segment)| (*id, segment.outside())).collect()
    }

    fn since_epoch(&self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(self.epoch).as_nanos();
        since.try_into().unwrap_or(u64::MAX)
    }
}

impl SegmentTeams {
    /// Gives each uplink a number. Known ones keep theirs. A new one has a link until it is seen
    /// that it has none.
    fn number_uplinks(&mut self, wanted: BTreeSet<PortId>, now: u64) {
        let before: Vec<Uplink> = self.uplinks.values().copied().collect();
        for (port, uplink) in std::mem::take(&mut self.uplinks) {
            if wanted.contains(&port) {
                self.uplinks.insert(port, uplink);
            } else {
                self.links.remove(uplink);
            }
        }
        for port in wanted {
            let is_taken = |uplink: &Uplink| self.uplinks.values().any(|taken| taken == uplink);
            let all = || (0..MOST_UPLINKS).filter_map(Uplink::new).filter(|uplink| !is_taken(uplink));
            // A port that used another uplink with this number would not notice the change.
            let free = all().find(|uplink| !before.contains(uplink)).or_else(|| all().next());
            if let (false, Some(uplink)) = (self.uplinks.contains_key(&port), free) {
                self.uplinks.insert(port, uplink);
                self.links.seen(uplink, true, now);
            }
        }
    }

    fn form_teams<'c>(&mut self, wanted: impl Iterator<Item = (u16, &'c TeamConfig)>) {
        // Places shift when another team comes or goes: the same team is one with the same rules.
        let before = std::mem::take(&mut self.teams);
        for (place, config) in wanted {
            let order = self.order(config);
            let is_same = |member: &&TeamState| {
                let rules = |config: &TeamConfig| (config.policy, config.failback);
                rules(&member.config) == rules(config) && member.order == order
            };
            let (team, former) = match before.values().find(is_same) {
                Some(member) => (member.team.clone(), member.former.clone()),
                None => (Team::new(policy(config.policy), order.clone(), config.failback), None),
            };
            self.teams.insert(place, TeamState { config: config.clone(), order, team, former });
        }
    }

    fn order(&self, config: &TeamConfig) -> Order {
        let numbers =
            |ports: &[PortId]| ports.iter().filter_map(|port| self.uplinks.get(port).copied()).collect();
        Order { active: numbers(&config.active), standby: numbers(&config.standby) }
    }

    fn give_ways(&mut self, wanted: BTreeMap<PortId, (u16, [u8; 6])>) {
        let before = std::mem::take(&mut self.ways);
        for port in before.keys().filter(|port| !wanted.contains_key(port)) {
            self.announcements.remove(*port);
        }
        let way = |(port, (team, mac))| {
            let new = PortWay { team, mac, path: Path::default(), receives: false };
            (port, PortWay { team, mac, ..before.get(&port).copied().unwrap_or(new) })
        };
        self.ways = wanted.into_iter().map(way).collect();
    }

    /// Chooses the uplinks of teams and ports again. Returns whether anything has changed.
    fn settle(&mut self, now: u64) -> bool {
        let mut changed = false;
        for TeamState { config, team, former, .. } in self.teams.values_mut() {
            let before = team.clone();
            team.settle(self.links.usable(team.listed(), now));
            if *team != before {
                info!(segment = config.segment.0, uplinks = ?team.used(), "a team uses other uplinks");
                *former = Some((before, now.saturating_add(FORMER_NS)));
                changed = true;
            }
        }
        for (port, way) in &mut self.ways {
            let Some(TeamState { config, team, .. }) = self.teams.get(&way.team) else { continue };
            let key = match team.policy() {
                Policy::SourceMac => address_key(way.mac),
                _ => port.0.into(),
            };
            let uplink = team.uplink(key);
            changed |= uplink != way.path.uplink();
            // Switches that are not told learn it from the port's own frames; until then they send
            // to the former uplink.
            if way.path.use_uplink(uplink) && config.notify_switches && way.receives {
                self.announcements.add(*port);
            }
        }
        changed
    }

    /// Forgets former uplinks whose time is over. Returns whether there was one.
    fn expire(&mut self, now: u64) -> bool {
        let mut changed = false;
        for TeamState { former, .. } in self.teams.values_mut() {
            changed |= former.take_if(|(_, until)| *until <= now).is_some();
        }
        for way in self.ways.values_mut() {
            changed |= way.path.expire(now);
        }
        changed
    }

    fn announce(&mut self, now: u64) -> Vec<(PortId, PortId)> {
        let mut announced = Vec::new();
        for port in self.announcements.take(now) {
            let Some(way) = self.ways.get(&port) else { continue };
            let notifies = self.teams.get(&way.team).is_some_and(|member| member.config.notify_switches);
            let uplink = way.path.uplink().filter(|_| notifies && way.receives);
            let uplink = self.uplinks.iter().find(|(_, number)| Some(**number) == uplink);
            announced.extend(uplink.map(|(uplink, _)| (port, *uplink)));
        }
        announced
    }

    fn outside(&self) -> Outside {
        let places: BTreeMap<u16, usize> = self.teams.keys().copied().zip(0..).collect();
        let way = |(port, way): (&PortId, &PortWay)| {
            Some((*port, Way { team: *places.get(&way.team)?, path: way.path }))
        };
        let settled = |member: &TeamState| Settled {
            now: member.team.clone(),
            former: member.former.as_ref().map(|(team, _)| team.clone()),
        };
        Outside {
            uplinks: self.uplinks.clone(),
            teams: self.teams.values().map(settled).collect(),
            ways: self.ways.iter().filter_map(way).collect(),
        }
    }
}

fn policy(policy: TeamPolicy) -> Policy {
    match policy {
        TeamPolicy::PortId => Policy::PortId,
        TeamPolicy::SourceMac => Policy::SourceMac,
        TeamPolicy::IpHash => Policy::IpHash,
        TeamPolicy::Explicit => Policy::Explicit,
    }
}

#[cfg(test)]
mod tests {
    use taut_api::fabric::config::{FrontEndRules, PortConfig};
    use taut_api::network::Security;
    use taut_api::shaping::Shaping;
    use taut_api::{Coalescing, MacAddr, Vlan};

    use super::*;

    /// Ports 0 and 1 are uplinks; ports 10 to 13 use the team with this number.
    struct Rig {
        teams: Teams,
        config: FabricConfig,
        links: [Option<bool>; 2],
        start: Instant,
    }

    fn port(id: u16, kind: PortKind, team: Option<u16>) -> PortConfig {
        PortConfig {
            id: PortId(id),
            owner: String::new(),
            kind,
            segment: SegmentId(1),
            vlan: Vlan::default(),
            mac: MacAddr([2, 0, 0, 0, 1, id as u8 / 2]),
            security: Security::default(),
            shaping: Shaping::default(),
            mac_learning: None,
            coalescing: Coalescing::Disabled,
            lro: false,
            front_end: FrontEndRules::default(),
            team,
        }
    }

    fn team(policy: TeamPolicy, active: &[u16], standby: &[u16]) -> TeamConfig {
        let ports = |ids: &[u16]| ids.iter().map(|id| PortId(*id)).collect();
        TeamConfig {
            segment: SegmentId(1),
            policy,
            active: ports(active),
            standby: ports(standby),
            failback: true,
            notify_switches: true,
        }
    }

    impl Rig {
        fn new(team: TeamConfig) -> Self {
            let uplinks = [0, 1].map(|id| port(id, PortKind::Uplink, None));
            let ports = (10..14).map(|id| port(id, PortKind::Stream, Some(0)));
            let ports = uplinks.into_iter().chain(ports).collect();
            let config = FabricConfig { ports, teams: vec![team], ..FabricConfig::default() };
            let mut rig =
                Self { teams: Teams::default(), config, links: [Some(true); 2], start: Instant::now() };
            rig.configure(0);
            rig
        }

        fn at(&self, ms: u64) -> Instant {
            self.start + Duration::from_millis(ms)
        }

        fn configure(&mut self, ms: u64) {
            let now = self.at(ms);
            self.teams.configure(&self.config, |_| true, now);
        }

        fn look(&mut self, ms: u64) -> bool {
            let (links, now) = (self.links, self.at(ms));
            self.teams.look(|port| links[usize::from(port.0)], |_| true, now)
        }

        /// Uplink of each port, as the switch gets it.
        fn uplinks(&self) -> Vec<Option<u8>> {
            let outside = &self.teams.outsides()[&SegmentId(1)];
            outside.ways.values().map(|way| way.path.uplink().map(Uplink::number)).collect()
        }

        fn announced(&mut self, ms: u64) -> Vec<(u16, u16)> {
            let now = self.at(ms);
            self.teams.announce(now).into_iter().map(|(port, uplink)| (port.0, uplink.0)).collect()
        }
    }

    #[test]
    fn ports_change_their_uplink_with_the_links_and_are_announced() {
        let mut rig = Rig::new(team(TeamPolicy::PortId, &[0, 1], &[]));
        assert_eq!(rig.uplinks(), [0, 1, 0, 1].map(Some));
        assert!(!rig.look(1));
        assert_eq!(rig.announced(1), [(10, 0), (11, 1), (12, 0), (13, 1)], "they begin to receive");
        rig.links[0] = Some(false);
        assert!(rig.look(30));
        assert_eq!(rig.uplinks(), [1; 4].map(Some));
        assert_eq!(rig.announced(30), [(10, 1), (12, 1)]);
        rig.links[0] = None;
        assert!(!rig.look(60), "what is not known changes nothing");
        rig.links[1] = Some(false);
        assert!(rig.look(90));
        assert_eq!(rig.uplinks(), [None; 4]);
    }

    #[test]
    fn ports_are_announced_where_their_frames_leave() {
        let mut rig = Rig::new(team(TeamPolicy::SourceMac, &[0, 1], &[]));
        rig.look(1);
        let outside = rig.teams.outsides()[&SegmentId(1)].clone();
        for (port, uplink) in rig.announced(1) {
            let config = rig.config.ports.iter().find(|config| config.id.0 == port).unwrap();
            let chosen = outside.teams[0].now.uplink(address_key(config.mac.0)).unwrap();
            assert_eq!(outside.uplinks[&PortId(uplink)], chosen, "port {port}");
        }
        assert_eq!(rig.uplinks(), [1, 1, 0, 0].map(Some));
    }

    #[test]
    fn a_former_uplink_receives_until_a_second_after_switches_were_told() {
        let mut rig = Rig::new(team(TeamPolicy::Explicit, &[0], &[1]));
        rig.look(1);
        rig.announced(1);
        rig.links[0] = Some(false);
        assert!(rig.look(30));
        let takes = |rig: &Rig| {
            let outside = &rig.teams.outsides()[&SegmentId(1)];
            let way = outside.ways[&PortId(10)];
            way.path.takes(&outside.teams[0].now, Uplink::new(0).unwrap(), true, 0)
        };
        rig.look(50_000);
        assert!(takes(&rig), "nobody was told");
        rig.announced(50_000);
        let now = rig.at(50_000);
        rig.teams.told(PortId(10), now);
        assert!(!rig.look(50_900) && takes(&rig));
        assert!(rig.look(51_000) && !takes(&rig));
    }

    #[test]
    fn a_team_without_failback_stays_where_it_is_whatever_else_changes() {
        let mut config = team(TeamPolicy::Explicit, &[0], &[1]);
        config.failback = false;
        let mut rig = Rig::new(config);
        rig.links[0] = Some(false);
        rig.look(30);
        rig.links[0] = Some(true);
        rig.look(60);
        rig.look(500);
        assert_eq!(rig.uplinks(), [1; 4].map(Some));
        let other = TeamConfig { segment: SegmentId(0), ..team(TeamPolicy::PortId, &[], &[]) };
        rig.config.teams.insert(0, other);
        rig.config.teams[1].notify_switches = false;
        for port in &mut rig.config.ports {
            port.team = port.team.map(|_| 1);
        }
        rig.configure(600);
        rig.look(700);
        assert_eq!(rig.uplinks(), [1; 4].map(Some));
    }

    #[test]
    fn an_uplink_that_takes_the_place_of_another_gets_another_number() {
        let mut rig = Rig::new(team(TeamPolicy::Explicit, &[0], &[]));
        rig.look(1);
        rig.announced(1);
        rig.config.ports[0] = port(5, PortKind::Uplink, None);
        rig.config.teams[0] = team(TeamPolicy::Explicit, &[5], &[]);
        rig.configure(50);
        assert_eq!(rig.uplinks(), [2; 4].map(Some));
        assert_eq!(rig.announced(50).len(), 4);
    }
}
