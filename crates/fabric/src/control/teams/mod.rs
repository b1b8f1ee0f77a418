//! Teams of uplinks: which uplinks have a link and a path, and which one each port uses (row VN-3).
//!
//! The fabric looks at the links itself, so a port changes its uplink also while `tautd` is dead.
//! The rules are those of `taut_uplink::team`; here they meet ports and the clock.
//!
//! * `segment`: the uplinks and teams of one vSwitch, and the uplink of each of its ports;
//! * `announcing`: ports and IP addresses of which switches and hosts outside are told;
//! * `probing`: uplinks of a team that have a path, by beacons or a gateway;
//! * `balance`: ports that leave a busy uplink;
//! * `vlans`: the VLANs in which the fabric sends frames of its own.

mod announcing;
mod balance;
mod probing;
mod segment;
#[cfg(test)]
mod tests;
mod vlans;

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher as _, Hasher as _};
use std::time::{Duration, Instant};

use taut_api::fabric::FabricConfig;
use taut_api::fabric::config::{PortId, PortKind, SegmentId};
use taut_uplink::team::Proof;

use crate::switch::outside::Outside;
use crate::sys::carrier;
pub(super) use announcing::{Announcement, Subject};
use segment::SegmentTeams;
pub(super) use vlans::first_vlans;

/// Time between two looks at the links.
pub(super) const LOOK: Duration = carrier::INTERVAL;

/// View of ports and uplinks.
pub(super) trait Sight {
    /// Returns whether the card of an uplink has a link; `None` if it is not known yet.
    fn has_link(&self, uplink: PortId) -> Option<bool>;

    /// Returns the number of the start of a port's first queue: a guest has started its rings, or a
    /// device is attached. `None` if the port receives no frames.
    fn first_start(&self, port: PortId) -> Option<u32>;

    /// Takes the proofs of an uplink's path that have arrived.
    fn proofs(&self, uplink: PortId) -> BTreeSet<Proof>;

    /// Returns the bytes on the wire that a port or an uplink has sent and received so far.
    fn used(&self, port: PortId) -> WireBytes;
}

/// WireBytes on the wire that a port or an uplink has sent and received so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct WireBytes {
    pub(super) sent: u64,
    pub(super) received: u64,
}

/// A frame of the fabric itself, without a tag, to be sent in a VLAN.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OwnFrame {
    pub(super) uplink: PortId,
    /// 0 for no VLAN.
    pub(super) vlan: u16,
    pub(super) frame: Vec<u8>,
}

/// The teams of all segments with uplinks.
#[derive(Debug)]
pub(super) struct Teams {
    /// The point in time from which the rules count.
    epoch: Instant,
    /// Number that tells the beacons of this process from others.
    process: u64,
    segments: BTreeMap<SegmentId, SegmentTeams>,
}

impl Default for Teams {
    fn default() -> Self {
        // The standard library draws the keys of its hashes at random.
        let process = RandomState::new().build_hasher().finish();
        Self { epoch: Instant::now(), process, segments: BTreeMap::new() }
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
            let ports: Vec<_> = ports().filter(|port| port.segment == *id).collect();
            segment.number_uplinks(&ports, now);
            segment.form_teams((0..).zip(&config.teams).filter(|(_, team)| team.segment == *id), &ports, now);
            segment.give_ways(&ports);
            segment.settle(now);
        }
    }

    /// Notes what is seen of links and traffic, and of ports that begin or end to receive. Returns
    /// whether the switch has to change.
    pub(super) fn look(&mut self, sight: &impl Sight, now: Instant) -> bool {
        let now = self.since_epoch(now);
        let mut changed = false;
        for segment in self.segments.values_mut() {
            segment.see_links(sight, now);
            segment.see_ports(sight);
            segment.hear(sight, now);
            // A port must not be moved to an uplink whose link was lost just now.
            changed |= segment.settle(now) | segment.expire(now);
            if segment.balance(sight, now) {
                changed |= segment.settle(now);
            }
        }
        changed
    }

    /// Takes the ports that have another uplink than before. They receive, and their teams notify
    /// switches.
    pub(super) fn take_moved(&mut self) -> BTreeSet<PortId> {
        self.segments.values_mut().flat_map(|segment| std::mem::take(&mut segment.moved)).collect()
    }

    /// Returns what is announced now.
    pub(super) fn announce(&mut self, now: Instant) -> Vec<Announcement> {
        let now = self.since_epoch(now);
        self.segments.values_mut().flat_map(|segment| segment.announce(now)).collect()
    }

    /// Returns the beacons and questions that are sent now.
    pub(super) fn probe(&mut self, now: Instant) -> Vec<OwnFrame> {
        let now = self.since_epoch(now);
        let process = self.process;
        self.segments.iter_mut().flat_map(|(id, segment)| segment.probe(process, *id, now)).collect()
    }

    /// Returns uplinks that have a link but no path, by what their teams probe.
    pub(super) fn without_path(&self) -> BTreeSet<PortId> {
        self.segments.values().flat_map(SegmentTeams::without_path).collect()
    }

    /// Notes that a port was announced.
    pub(super) fn told(&mut self, port: PortId, now: Instant) {
        let now = self.since_epoch(now);
        for segment in self.segments.values_mut() {
            segment.told(port, now);
        }
    }

    /// Returns when [`Self::announce`] has more.
    pub(super) fn next_announcement(&self) -> Option<Instant> {
        let next = self.segments.values().filter_map(SegmentTeams::next_announcement).min();
        next.map(|at| self.epoch + Duration::from_nanos(at))
    }

    /// Returns the outside of each segment for the switch.
    pub(super) fn outsides(&self) -> BTreeMap<SegmentId, Outside> {
        self.segments.iter().map(|(id, segment)| (*id, segment.outside((self.process, id.0)))).collect()
    }

    fn since_epoch(&self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(self.epoch).as_nanos();
        since.try_into().unwrap_or(u64::MAX)
    }
}
