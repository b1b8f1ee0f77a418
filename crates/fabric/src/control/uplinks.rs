//! Uplinks: looks at their links, and announces ports to physical switches.

use std::collections::BTreeMap;
use std::time::Instant;

use taut_api::Vlan;
use taut_api::fabric::PortId;
use taut_uplink::team::{Address, announcements_of};

use super::Control;
use super::entry::Entry;
use super::teams::LOOK;
use crate::net::queue::PairIdx;
use crate::net::vlan::tagged;
use crate::port::Port;

/// Most VLANs of a trunk in which its port is announced: one with all VLANs would flood the
/// physical network.
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
            let links: BTreeMap<PortId, bool> =
                self.teams.uplinks().into_iter().map(|id| (id, self.has_link(id))).collect();
            let has_link = |id| links.get(&id).copied().unwrap_or(false);
            let entries = &self.entries;
            let receives =
                |id| entries.get(&id).and_then(Entry::port).is_some_and(|(_, port)| port.receiving() != 0);
            if self.teams.look(has_link, receives, now) {
                let workers = self.config.workers.clone();
                self.switch_over(&workers);
            }
        }
        for (port, uplink) in self.teams.announce(now) {
            self.announce(port, uplink);
        }
        let next = self.teams.next_announcement().unwrap_or(self.next_look);
        Some(next.min(self.next_look))
    }

    fn has_link(&self, uplink: PortId) -> bool {
        self.entries.get(&uplink).is_some_and(Entry::has_link)
    }

    /// Tells physical switches that the address of a port is behind an uplink. A frame that finds
    /// no room is lost: the port's own frames tell the same.
    fn announce(&self, port: PortId, uplink: PortId) {
        let of = |id| self.entries.get(&id).and_then(Entry::port);
        let (Some((config, _)), Some((_, uplink))) = (of(port), of(uplink)) else { return };
        let address = Address { mac: config.mac.0, ips: Vec::new(), is_router: None };
        for frame in announcements_of(&address) {
            for vlan in vlans(&config.vlan) {
                send(uplink, &tagged(&frame, vlan));
            }
        }
    }
}

/// Returns the VLANs in which a port is announced; 0 stands for frames without a tag.
fn vlans(vlan: &Vlan) -> Vec<u16> {
    match vlan {
        Vlan::Access(vlan) => vec![*vlan],
        Vlan::Trunk(ranges) => {
            let all: Vec<u16> =
                ranges.iter().flat_map(|(first, last)| first..=last).take(MOST_VLANS + 1).collect();
            if all.len() > MOST_VLANS { vec![0] } else { all }
        }
    }
}

fn send(uplink: &Port, frame: &[u8]) {
    if let Some(end) = &mut uplink.rx(PairIdx::FIRST).end {
        // Whatever becomes of it: nobody waits for it.
        let _ = end.put_bytes(frame);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_announced_in_its_vlans_unless_they_are_many() {
        for (vlan, announced) in [
            ("0", vec![0]),
            ("10", vec![10]),
            ("10-12,20", vec![10, 11, 12, 20]),
            ("4095", vec![0]),
            ("1-17", vec![0]),
        ] {
            assert_eq!(vlans(&vlan.parse().unwrap()), announced, "{vlan}");
        }
    }
}
