//! Uplinks: looks at their links, and announces ports to physical switches.

use std::time::Instant;

use taut_api::Vlan;
use taut_api::fabric::PortId;
use taut_uplink::team::{Address, announcements_of};

use super::Control;
use super::entry::Entry;
use super::teams::LOOK;
use crate::net::queue::PairIdx;
use crate::net::vlan::tagged;
use crate::port::{Port, Put};

/// Most VLANs of a trunk in which its port is announced, the first ones: one with all VLANs would
/// flood the physical network.
const MOST_VLANS: usize = 16;

impl Control {
    /// Looks at the links of uplinks if it is time, and at what follows. Returns the time of the
    /// next look; `None` without uplinks.
    pub(super) fn look_at_uplinks(&mut self, now: Instant) -> Option<Instant> {
        if self.standby || self.teams.is_empty() {
            return None;
        }
        if now >= self.next_look {
            self.next_look = now + LOOK;
            let entries = &self.entries;
            let has_link = |id| entries.get(&id).and_then(Entry::has_link);
            let receives =
                |id| entries.get(&id).and_then(Entry::port).is_some_and(|(_, port)| port.receiving() != 0);
            if self.teams.look(has_link, receives, now) {
                let workers = self.config.workers.clone();
                self.switch_over(&workers);
            }
        }
        for (port, uplink) in self.teams.announce(now) {
            if self.announce(port, uplink) {
                self.teams.told(port, now);
            }
        }
        let next = self.teams.next_announcement().unwrap_or(self.next_look);
        Some(next.min(self.next_look))
    }

    /// Tells physical switches that the address of a port is behind an uplink. Returns whether the
    /// card has taken all frames; the port's own frames tell the same later.
    fn announce(&self, port: PortId, uplink: PortId) -> bool {
        let of = |id| self.entries.get(&id).and_then(Entry::port);
        let (Some((config, _)), Some((_, uplink))) = (of(port), of(uplink)) else { return false };
        let address = Address { mac: config.mac.0, ips: Vec::new(), is_router: None };
        let frames = announcements_of(&address);
        let mut all = frames.iter().flat_map(|frame| vlans(&config.vlan).map(|vlan| tagged(frame, vlan)));
        all.all(|frame| send(uplink, &frame))
    }
}

/// Returns the VLANs in which a port is announced; 0 stands for frames without a tag.
fn vlans(vlan: &Vlan) -> impl Iterator<Item = u16> {
    let ranges = match vlan {
        Vlan::Access(vlan) => vec![(*vlan, *vlan)],
        Vlan::Trunk(ranges) => ranges.iter().collect(),
    };
    ranges.into_iter().flat_map(|(first, last)| first..=last).take(MOST_VLANS)
}

/// Sends a frame. Returns whether the card has taken it.
fn send(uplink: &Port, frame: &[u8]) -> bool {
    let slot = &mut uplink.rx(PairIdx::FIRST);
    slot.end.as_mut().is_some_and(|end| matches!(end.put_bytes(frame), Put::Done))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_announced_in_its_first_vlans() {
        let announced = |vlan: &str| vlans(&vlan.parse().unwrap()).collect::<Vec<_>>();
        assert_eq!(announced("0"), [0]);
        assert_eq!(announced("10"), [10]);
        assert_eq!(announced("10-12,20"), [10, 11, 12, 20]);
        assert_eq!(announced("4095"), (0..16).collect::<Vec<_>>());
        assert_eq!(announced("1-17"), (1..=16).collect::<Vec<_>>());
    }
}
