//! Teams of uplinks: which uplinks have a link, and which one each port uses (row VN-3).
//!
//! This thread looks at the links itself, so a port changes its uplink also while `tautd` is dead.
//! The rules are those of `taut_uplink::team`; here they meet ports and the clock.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use taut_api::fabric::FabricConfig;
use taut_api::fabric::config::{PortId, PortKind, SegmentId, TeamConfig};
use taut_api::teaming::TeamPolicy;
use taut_uplink::team::{Announcements, FORMER_NS, Links, MOST_UPLINKS, Order, Path, Policy, Team, Uplink};

use crate::switch::outside::{Outside, Settled, Way};

/// Time between two looks at the links. The kernel tells of a lost carrier up to a second late.
pub(super) const LOOK: Duration = Duration::from_millis(25);

/// The teams of all segments with uplinks.
#[derive(Debug)]
pub(super) struct Teams {
    /// The point in time from which the rules count.
    epoch: Instant,
    segments: BTreeMap<SegmentId, Segment>,
}

/// Uplinks and teams of a segment.
#[derive(Debug, Default)]
struct Segment {
    uplinks: BTreeMap<PortId, Uplink>,
    links: Links,
    /// The teams by their places in the configuration.
    teams: BTreeMap<u16, Member>,
    ways: BTreeMap<PortId, PortWay>,
    /// Ports whose place physical switches have to be told.
    announcements: Announcements<PortId>,
}

/// A team with its configuration, and with the numbers of the uplinks in that.
#[derive(Debug)]
struct Member {
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
            let ways = of_segment().filter_map(|port| Some((port.id, port.team?)));
            segment.give_ways(ways.collect());
            segment.settle(now);
        }
    }

    /// Returns the uplinks whose links have to be looked at.
    pub(super) fn uplinks(&self) -> Vec<PortId> {
        self.segments.values().flat_map(|segment| segment.uplinks.keys().copied()).collect()
    }

    /// Notes what is seen of the links, and of ports that begin or end to receive. Returns whether
    /// the switch has to change.
    pub(super) fn look(
        &mut self,
        has_link: impl Fn(PortId) -> bool,
        receives: impl Fn(PortId) -> bool,
        now: Instant,
    ) -> bool {
        let now = self.since_epoch(now);
        let mut changed = false;
        for segment in self.segments.values_mut() {
            for (port, uplink) in &segment.uplinks {
                segment.links.seen(*uplink, has_link(*port), now);
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

impl Segment {
    /// Gives each uplink a number. Known ones keep theirs. A new one has a link until it is seen
    /// that it has none.
    fn number_uplinks(&mut self, wanted: BTreeSet<PortId>, now: u64) {
        for (port, uplink) in std::mem::take(&mut self.uplinks) {
            if wanted.contains(&port) {
                self.uplinks.insert(port, uplink);
            } else {
                self.links.remove(uplink);
            }
        }
        for port in wanted {
            let is_free = |uplink: &Uplink| !self.uplinks.values().any(|taken| taken == uplink);
            let free = (0..MOST_UPLINKS).filter_map(Uplink::new).find(is_free);
            if let (false, Some(uplink)) = (self.uplinks.contains_key(&port), free) {
                self.uplinks.insert(port, uplink);
                self.links.seen(uplink, true, now);
            }
        }
    }

    fn form_teams<'c>(&mut self, wanted: impl Iterator<Item = (u16, &'c TeamConfig)>) {
        let mut before = std::mem::take(&mut self.teams);
        for (place, config) in wanted {
            let order = self.order(config);
            let is_same = |member: &Member| member.config == *config && member.order == order;
            let member = before.remove(&place).filter(is_same).unwrap_or_else(|| Member {
                config: config.clone(),
                team: Team::new(policy(config.policy), order.clone(), config.failback),
                order,
                former: None,
            });
            self.teams.insert(place, member);
        }
    }

    fn order(&self, config: &TeamConfig) -> Order {
        let numbers =
            |ports: &[PortId]| ports.iter().filter_map(|port| self.uplinks.get(port).copied()).collect();
        Order { active: numbers(&config.active), standby: numbers(&config.standby) }
    }

    fn give_ways(&mut self, wanted: BTreeMap<PortId, u16>) {
        let before = std::mem::take(&mut self.ways);
        for port in before.keys().filter(|port| !wanted.contains_key(port)) {
            self.announcements.remove(*port);
        }
        let new = |team| PortWay { team, path: Path::default(), receives: false };
        let way = |(port, team)| (port, PortWay { team, ..before.get(&port).copied().unwrap_or(new(team)) });
        self.ways = wanted.into_iter().map(way).collect();
    }

    /// Chooses the uplinks of teams and ports again. Returns whether anything has changed.
    fn settle(&mut self, now: u64) -> bool {
        let mut changed = false;
        for Member { team, former, .. } in self.teams.values_mut() {
            let before = team.clone();
            team.settle(self.links.usable(team.listed(), now));
            if *team != before {
                *former = Some((before, now.saturating_add(FORMER_NS)));
                changed = true;
            }
        }
        for (port, way) in &mut self.ways {
            let Some(Member { config, team, .. }) = self.teams.get(&way.team) else { continue };
            let uplink = team.uplink(port.0.into());
            let moves = uplink != way.path.uplink();
            if way.path.use_uplink(uplink) {
                if config.notify_switches && way.receives {
                    self.announcements.add(*port);
                } else {
                    way.path.told(now);
                }
            }
            changed |= moves;
        }
        changed
    }

    /// Forgets former uplinks whose time is over. Returns whether there was one.
    fn expire(&mut self, now: u64) -> bool {
        let mut changed = false;
        for Member { former, .. } in self.teams.values_mut() {
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
            let Some(way) = self.ways.get_mut(&port) else { continue };
            way.path.told(now);
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
        let settled = |member: &Member| Settled {
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
