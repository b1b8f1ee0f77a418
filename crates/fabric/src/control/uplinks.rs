//! Uplinks: looks at their links and traffic, and sends the fabric's own frames.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use taut_api::fabric::PortId;
use taut_api::fabric::counters::PortWord;
use taut_api::teaming::TeamPolicy;
use taut_uplink::team::{Proof, announcement, ip_announcement};

use super::Control;
use super::entry::Entry;
use super::own_frames::put_own;
use super::teams::{Announcement, LOOK, OwnFrame, Sight, Subject, WireBytes, first_vlans};
use crate::net::queue::PairIdx;
use crate::net::vlan::tagged;
use crate::port::Port;

/// The entries as the teams see them.
struct Entries<'c>(&'c BTreeMap<PortId, Entry>);

impl Entries<'_> {
    fn port(&self, id: PortId) -> Option<&Port> {
        self.0.get(&id).and_then(Entry::port).map(|(_, port)| &**port)
    }
}

impl Sight for Entries<'_> {
    fn has_link(&self, uplink: PortId) -> Option<bool> {
        self.0.get(&uplink).and_then(Entry::has_link)
    }

    fn first_start(&self, port: PortId) -> Option<u32> {
        self.0.get(&port).and_then(Entry::first_start)
    }

    fn proofs(&self, uplink: PortId) -> BTreeSet<Proof> {
        self.port(uplink).map(|port| port.proofs.take()).unwrap_or_default()
    }

    fn used(&self, port: PortId) -> WireBytes {
        let word = |word| self.port(port).map_or(0, |port| port.counters.get(word));
        WireBytes { sent: word(PortWord::WireTxBytes), received: word(PortWord::WireRxBytes) }
    }
}

impl Control {
    /// Looks at uplinks if it is time, and at what follows. Returns the time of the next look;
    /// `None` without uplinks.
    pub(super) fn look_at_uplinks(&mut self, now: Instant) -> Option<Instant> {
        if self.standby || self.teams.is_empty() {
            return None;
        }
        if now >= self.next_look {
            self.next_look = now + LOOK;
            if self.teams.look(&Entries(&self.entries), now) {
                let workers = self.config.workers.clone();
                self.switch_over(&workers);
            }
            // Switches outside learn from the answers which groups are behind the new uplink.
            for port in self.teams.take_moved() {
                self.groups.ask_again(port, now);
            }
            self.note_paths();
            for OwnFrame { uplink, vlan, frame } in self.teams.probe(now) {
                // One that is lost is like one that was not answered.
                self.send_by(uplink, &tagged(&frame, vlan));
            }
        }
        for announced in self.teams.announce(now) {
            if self.announce(&announced) && announced.subject == Subject::Port {
                self.teams.told(announced.port, now);
            }
        }
        let next = self.teams.next_announcement().unwrap_or(self.next_look);
        Some(next.min(self.next_look))
    }

    /// Notes uplinks that have lost their path, or have it again, and reports it.
    fn note_paths(&mut self) {
        let without_path = self.teams.without_path();
        let mut changed = false;
        for (id, entry) in &mut self.entries {
            let is_lost = without_path.contains(id);
            changed |= std::mem::replace(&mut entry.has_no_path, is_lost) != is_lost;
        }
        if changed {
            self.report_changes();
        }
    }

    /// Tells physical switches that a port is behind an uplink, or hosts which Ethernet address has
    /// an IP address of the port. Returns whether the card has taken all frames; the port's own
    /// frames tell the same later.
    fn announce(&self, Announcement { port, uplink, subject }: &Announcement) -> bool {
        let Some((config, port)) = self.entries.get(port).and_then(Entry::port) else { return false };
        let mac = port.address.current(config.mac.into()).octets();
        let team = config.team.and_then(|team| self.config.teams.get(usize::from(team)));
        if mac != config.mac.0 && team.is_some_and(|team| team.policy == TeamPolicy::SourceMac) {
            // `uplink` is that of the configured address. This one's frames may leave by another.
            return false;
        }
        let send = |frame: &[u8], vlan| self.send_by(*uplink, &tagged(frame, vlan));
        match *subject {
            Subject::Port => {
                let frame = announcement(mac);
                first_vlans(&config.vlan).all(|vlan| send(&frame, vlan))
            }
            Subject::Ip { vlan, ip, stated_from, is_router } => {
                // The guest may have another address since, or its port another VLAN.
                let is_valid = stated_from.is_none_or(|from| from == mac) && config.vlan.admits(vlan);
                let frame = ip_announcement(mac, ip, is_router).filter(|_| is_valid);
                frame.is_some_and(|frame| send(&frame, vlan))
            }
        }
    }

    /// Sends a frame by an uplink. Returns whether the card has taken it.
    fn send_by(&self, uplink: PortId, frame: &[u8]) -> bool {
        let Some((_, uplink)) = self.entries.get(&uplink).and_then(Entry::port) else { return false };
        let pair = PairIdx::FIRST;
        let mut slot = uplink.rx(pair);
        let is_taken = put_own(uplink, slot.end.as_mut(), frame);
        let later = slot.publish(Instant::now(), &uplink.counters);
        drop(slot);
        if later.is_some() {
            // The queue's worker has timers. It sends what the kernel has not taken.
            self.workers.recheck(uplink.id);
        }
        is_taken
    }
}
