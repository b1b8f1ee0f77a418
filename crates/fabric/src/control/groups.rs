//! Multicast groups: asks ports for theirs, and reports them to `tautd`.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use taut_api::Vlan;
use taut_api::fabric::config::{FabricConfig, PortConfig, PortKind, SegmentId};
use taut_api::fabric::message::{GroupMembers, SegmentGroups};
use taut_api::fabric::{FromFabric, PortId};

use super::Control;
use super::entry::Entry;
use super::own_frames::put_own;
use super::teams::first_vlans;
use crate::net::multicast::queries;
use crate::net::queue::PairIdx;
use crate::net::vlan::tagged;
use crate::snooping::{Listing, PortSetup, Questions, Snooping};

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(200);
/// Number of looks until members whose time is over are removed, and changed groups reported.
const LOOKS_PER_REPORT: u64 = 5;
/// Most members of a segment that are asked in one look whether they are still there.
const MOST_ASKED: usize = 128;
/// Most groups of a segment that are reported.
const MOST_REPORTED: usize = 256;

/// Segments with snooping, and the ports that are to be asked.
#[derive(Debug)]
pub(super) struct GroupWatch {
    segments: BTreeMap<SegmentId, Arc<Snooping>>,
    /// Number of changes that were reported, by segment.
    reported: BTreeMap<SegmentId, u64>,
    questions: Questions,
    epoch: Instant,
    next_look: Instant,
    looks: u64,
}

impl Default for GroupWatch {
    fn default() -> Self {
        let now = Instant::now();
        Self {
            segments: BTreeMap::new(),
            reported: BTreeMap::new(),
            questions: Questions::default(),
            epoch: now,
            next_look: now,
            looks: 0,
        }
    }
}

impl GroupWatch {
    /// Returns the segments with snooping.
    pub(super) fn by_segment(&self) -> &BTreeMap<SegmentId, Arc<Snooping>> {
        &self.segments
    }

    /// Asks a port for its groups again, now, if its segment follows them.
    pub(super) fn ask_again(&mut self, port: PortId, now: Instant) {
        self.questions.repeat(port, self.at(now));
        self.next_look = now;
    }

    fn at(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.epoch).as_millis().try_into().unwrap_or(u64::MAX)
    }
}

impl Control {
    /// Puts the wanted snooping into force. Segments that had it keep their groups.
    pub(super) fn configure_groups(&mut self, config: &FabricConfig) {
        let now = Instant::now();
        let mut ports = BTreeMap::<SegmentId, BTreeMap<PortId, PortSetup>>::new();
        let all = self.entries.values().filter_map(Entry::port).map(|(config, _)| config);
        for port in all.filter(|port| port.kind != PortKind::Uplink) {
            let setup = PortSetup {
                owner: port.owner.clone(),
                vlan: port.vlan.clone(),
                takes_all: port.security.promiscuous || has_unasked_vlans(&port.vlan),
            };
            ports.entry(port.segment).or_default().insert(port.id, setup);
        }
        let groups = &mut self.groups;
        let mut before = std::mem::take(&mut groups.segments);
        for id in &config.snooping {
            let snooping = before.remove(id).unwrap_or_else(|| Arc::new(Snooping::new(now)));
            snooping.change(|groups| groups.set_ports(ports.get(id).cloned().unwrap_or_default()));
            groups.segments.insert(*id, snooping);
        }
        let is_followed = |port: PortId| {
            groups.segments.keys().any(|id| ports.get(id).is_some_and(|ports| ports.contains_key(&port)))
        };
        groups.questions.keep(is_followed);
        groups.reported.clear();
        groups.next_look = now;
    }

    /// Asks ports for their groups if it is time, and reports changes. Returns the time of the next
    /// look; `None` if there is nothing to look at.
    pub(super) fn look_at_groups(&mut self, now: Instant) -> Option<Instant> {
        let groups = &mut self.groups;
        if self.standby || groups.segments.is_empty() {
            return None;
        }
        if now >= groups.next_look {
            groups.next_look = now + LOOK;
            groups.looks += 1;
            let looks = groups.looks;
            self.see_ports(now);
            self.ask_ports(now);
            self.ask_members(now);
            if looks.is_multiple_of(LOOKS_PER_REPORT) {
                self.groups.segments.values().for_each(|snooping| snooping.expire(now));
                self.report_groups(now);
            }
        }
        Some(self.groups.next_look)
    }

    /// Notes ports that begin or end to receive: those that begin are asked, and those that end are
    /// asked no more.
    fn see_ports(&mut self, now: Instant) {
        let at = self.groups.at(now);
        let mut seen = BTreeMap::<SegmentId, Vec<(PortId, Option<u32>)>>::new();
        for (id, entry) in &self.entries {
            let Some((config, _)) = entry.port() else { continue };
            let start = entry.first_start();
            if start.is_none() {
                self.groups.questions.end(*id);
            }
            seen.entry(config.segment).or_default().push((*id, start));
        }
        for (segment, snooping) in &self.groups.segments {
            let mut news = seen.remove(segment).unwrap_or_default();
            // Workers wait only if something has changed.
            snooping.look(|groups| news.retain(|(id, start)| groups.is_news(*id, *start)));
            for (id, start) in news {
                if snooping.change(|groups| groups.see(id, start)) {
                    self.groups.questions.begin(id, at);
                }
            }
        }
    }

    /// Asks ports for all their groups.
    fn ask_ports(&mut self, now: Instant) {
        let at = self.groups.at(now);
        for id in self.groups.questions.due(at) {
            let port = self.entries.get(&id).and_then(Entry::port);
            let was_asked =
                port.is_some_and(|(config, _)| vlans_of(config).all(|vlan| self.put_queries(id, None, vlan)));
            let snooping = port.and_then(|(config, _)| self.groups.segments.get(&config.segment));
            let snooping = snooping.cloned();
            if self.groups.questions.asked(id, was_asked, at)
                && let Some(snooping) = snooping
            {
                let at = snooping.at(now);
                snooping.change(|groups| groups.asked(id, at));
            }
        }
    }

    /// Asks members that may be gone whether they are still there.
    fn ask_members(&self, now: Instant) {
        for snooping in self.groups.segments.values() {
            let at = snooping.at(now);
            for doubt in snooping.look(|groups| groups.doubts(at, MOST_ASKED)) {
                let port = self.entries.get(&doubt.port).and_then(Entry::port);
                let tag = |config: &PortConfig| match config.vlan {
                    Vlan::Access(_) => 0,
                    Vlan::Trunk(_) => doubt.vlan,
                };
                let was_asked = port
                    .is_some_and(|(config, _)| self.put_queries(doubt.port, Some(doubt.group), tag(config)));
                snooping.change(|groups| groups.doubted(doubt, was_asked, at));
            }
        }
    }

    /// Hands queries to a port, with a tag of this VLAN unless it is 0. Returns whether the port
    /// has taken them.
    fn put_queries(&self, id: PortId, group: Option<IpAddr>, vlan: u16) -> bool {
        let Some((_, port)) = self.entries.get(&id).and_then(Entry::port) else { return false };
        let mut slot = port.rx(PairIdx::FIRST);
        let slot = &mut *slot;
        for query in queries(group) {
            let query = tagged(&query, vlan);
            if !put_own(port, slot.end.as_mut(), &query) {
                return false;
            }
            slot.fresh.frames += 1;
            slot.fresh.bytes += query.len() as u64;
            slot.fresh.multicast += 1;
        }
        // A worker publishes them: it has the timers for an interrupt that is due later.
        self.workers.recheck(id);
        true
    }

    /// Reports groups that have changed.
    fn report_groups(&mut self, now: Instant) {
        if !self.tautd.is_greeted() {
            return;
        }
        let GroupWatch { segments, reported, .. } = &mut self.groups;
        for (&segment, snooping) in segments {
            let at = snooping.at(now);
            let changed = snooping.look(|groups| {
                let changes = groups.changes();
                let before = reported.insert(segment, changes);
                (before != Some(changes)).then(|| groups.list(MOST_REPORTED, at))
            });
            if let Some(listing) = changed {
                let groups = of_listing(listing);
                self.tautd.send(&FromFabric::Groups { segment, groups }, &[]);
            }
        }
    }
}

/// Returns whether a port has more VLANs than it is asked in: it takes all frames.
fn has_unasked_vlans(vlan: &Vlan) -> bool {
    match vlan {
        Vlan::Access(_) => false,
        Vlan::Trunk(ranges) => {
            let all: usize = ranges.iter().map(|(first, last)| usize::from(last - first) + 1).sum();
            first_vlans(vlan).count() < all
        }
    }
}

/// Returns the tags of queries for all groups of a port, 0 for none.
fn vlans_of(config: &PortConfig) -> impl Iterator<Item = u16> {
    let tags = match &config.vlan {
        Vlan::Access(_) => vec![0],
        trunk @ Vlan::Trunk(_) => first_vlans(trunk).collect(),
    };
    tags.into_iter()
}

fn of_listing(listing: Listing) -> SegmentGroups {
    let group = |(vlan, group, ports)| GroupMembers { vlan, group, ports };
    SegmentGroups {
        groups: listing.groups.into_iter().map(group).collect(),
        more: listing.more.try_into().unwrap_or(u32::MAX),
        routers: listing.routers,
    }
}
