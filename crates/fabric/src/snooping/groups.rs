//! Members of groups, in virtual time. All times are in milliseconds.

use std::collections::btree_map::Entry as Slot;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use taut_api::fabric::PortId;

use super::member::{After, Asking, Doubt, Member};
use super::port::{PortSetup, PortState};
use crate::net::multicast::{Change, Message, Record};

/// Time after its last report for which a port is a member (RFC 3376, section 8.4: 2 × 125 s, and
/// 10 s until an answer).
pub(super) const MEMBER_MS: u64 = 260_000;
/// Time after its last query for which a port leads to a router (RFC 3376, section 8.5: 2 × 125 s,
/// and half of 10 s).
const ROUTER_MS: u64 = 255_000;
/// Time from the last query of a series until what a port has joined is known. Hosts answer within
/// 1 s, and within 10 s if somebody has sent them a query of IGMPv1 (RFC 1112, appendix I).
const ANSWERED_MS: u64 = 11_000;
/// Most groups of a port, over all VLANs.
pub(super) const MOST_OF_PORT: usize = 512;
/// Most groups of a vSwitch, over all VLANs.
pub(super) const MOST_GROUPS: usize = 4096;

/// Members, routers, and ports of which it is not known yet.
#[derive(Debug, Default)]
pub struct Groups {
    /// Ports by number.
    ports: Vec<Option<PortState>>,
    members: BTreeMap<(u16, IpAddr), BTreeMap<PortId, Member>>,
    /// Members that may be gone, by the time of the next query for them.
    doubts: BTreeSet<(u64, Doubt)>,
    /// Each member once, by the time of the next look at it ([`Member::look`]). A report does not
    /// move it, so that workers do less.
    looks: BTreeSet<(u64, Doubt)>,
    /// Number of changes of what [`Self::list`] returns. What ends with time is counted by
    /// [`Self::expire`].
    changes: u64,
}

/// The ports that take a frame.
#[derive(Debug)]
pub struct Audience<'g> {
    groups: &'g Groups,
    is_report: bool,
    members: Option<&'g BTreeMap<PortId, Member>>,
    now: u64,
}

impl Audience<'_> {
    /// Returns whether a port takes the frame.
    pub fn has(&self, port: PortId) -> bool {
        let Some(state) = self.groups.port(port) else { return true };
        if self.is_report {
            // A host that hears the report of another one may keep its own back (RFC 2236, section
            // 3), and its port would not become a member.
            return state.setup.takes_all || self.now < state.router_until;
        }
        let is_member = |members: &BTreeMap<PortId, Member>| {
            members.get(&port).is_some_and(|member| self.now < member.until)
        };
        state.takes_all(self.now) || self.members.is_some_and(is_member)
    }
}

/// Groups with their members, as users see them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    /// The first groups: VLAN, address, members.
    pub groups: Vec<(u16, IpAddr, Vec<PortId>)>,
    /// Number of further groups.
    pub more: usize,
    /// Ports that lead to routers.
    pub routers: Vec<PortId>,
}

impl Groups {
    fn port(&self, port: PortId) -> Option<&PortState> {
        self.ports.get(usize::from(port.0))?.as_ref()
    }

    fn port_mut(&mut self, port: PortId) -> Option<&mut PortState> {
        self.ports.get_mut(usize::from(port.0))?.as_mut()
    }

    /// Takes over the ports of the vSwitch, without uplinks. Those whose setup is the same keep
    /// their state.
    pub fn set_ports(&mut self, wanted: BTreeMap<PortId, PortSetup>) {
        let numbers = (0..self.ports.len()).map(|number| PortId(number as u16));
        let gone = |port: &PortId| {
            let setup = self.port(*port).map(|state| &state.setup);
            setup.is_some() && setup != wanted.get(port)
        };
        for port in numbers.filter(gone).collect::<Vec<_>>() {
            self.forget(port);
            self.ports[usize::from(port.0)] = None;
        }
        for (port, setup) in wanted {
            let place = usize::from(port.0);
            if self.ports.len() <= place {
                self.ports.resize_with(place + 1, || None);
            }
            self.ports[place].get_or_insert_with(|| PortState::new(setup));
        }
    }

    /// Returns whether [`Self::see`] would note anything new.
    pub fn is_news(&self, port: PortId, start: Option<u32>) -> bool {
        self.port(port).is_some_and(|state| state.start != start)
    }

    /// Notes whether a port receives frames: the number of the start of its queue, or `None`.
    /// Returns true if it has just begun to: it is to be asked, and takes all frames until
    /// [`Self::asked`].
    pub fn see(&mut self, port: PortId, start: Option<u32>) -> bool {
        let Some(state) = self.port_mut(port) else { return false };
        let before = std::mem::replace(&mut state.start, start);
        if before.is_some() && before != start {
            // Another guest may be there, or the same one after a restart. Queries may be lost.
            self.forget(port);
        }
        start.is_some() && before != start
    }

    /// Notes that a port was asked as often as a port that has begun to receive.
    pub fn asked(&mut self, port: PortId, now: u64) {
        if let Some(state) = self.port_mut(port)
            && state.start.is_some()
        {
            state.known_from.get_or_insert(now.saturating_add(ANSWERED_MS));
        }
    }

    /// Forgets what is known of a port: it takes all frames again. Takes as long as the port has
    /// groups, because workers wait meanwhile.
    fn forget(&mut self, port: PortId) {
        let Some(state) = self.port_mut(port) else { return };
        let new = PortState { start: state.start, ..PortState::new(state.setup.clone()) };
        for (vlan, group) in std::mem::replace(state, new).groups {
            let place = Doubt { port, vlan, group };
            if let Some(member) = self.remove(place) {
                self.looks.remove(&(member.look, place));
            }
        }
        self.changes += 1;
    }

    /// Removes a member from its group and from those in doubt. The caller removes it from
    /// [`Self::looks`] and from the groups of its port.
    fn remove(&mut self, place: Doubt) -> Option<Member> {
        let Slot::Occupied(mut group) = self.members.entry((place.vlan, place.group)) else { return None };
        let member = group.get_mut().remove(&place.port)?;
        if group.get().is_empty() {
            group.remove();
        }
        if let Some(asking) = member.doubt {
            self.doubts.remove(&(asking.next, place));
        }
        Some(member)
    }

    /// Notes a message of a port. Ports that are not known, such as uplinks, have no state.
    pub fn hear(&mut self, from: PortId, vlan: u16, message: Message, records: &[Record], now: u64) {
        let Some(state) = self.port_mut(from) else { return };
        match message {
            Message::Query => {}
            Message::Router => {
                let is_new = state.router_until <= now;
                state.router_until = now.saturating_add(ROUTER_MS);
                self.changes += u64::from(is_new);
            }
            Message::Report { complete } => {
                if !complete {
                    state.overflows_until = now.saturating_add(MEMBER_MS);
                }
                for Record { group, change } in records {
                    let place = Doubt { port: from, vlan, group: *group };
                    match change {
                        Change::Join => self.join(place, now),
                        Change::Leave => self.doubt(place, now),
                    }
                }
            }
        }
    }

    fn join(&mut self, place: Doubt, now: u64) {
        let Doubt { port, vlan, group } = place;
        let until = now.saturating_add(MEMBER_MS);
        let key = (vlan, group);
        if let Some(member) = self.members.get_mut(&key).and_then(|members| members.get_mut(&port)) {
            member.until = until;
            if let Some(asking) = member.doubt.take() {
                self.doubts.remove(&(asking.next, place));
            }
            return;
        }
        let is_full = self.members.len() >= MOST_GROUPS && !self.members.contains_key(&key);
        let Some(state) = self.port_mut(port) else { return };
        if is_full || state.groups.len() >= MOST_OF_PORT {
            state.overflows_until = until;
            return;
        }
        state.groups.insert(key);
        self.members.entry(key).or_default().insert(port, Member { until, look: until, doubt: None });
        self.looks.insert((until, place));
        self.changes += 1;
    }

    /// Notes that a member may be gone: it is asked at once.
    fn doubt(&mut self, place: Doubt, now: u64) {
        let members = self.members.get_mut(&(place.vlan, place.group));
        let member = members.and_then(|members| members.get_mut(&place.port));
        if let Some(member @ Member { doubt: None, .. }) = member {
            member.doubt = Some(Asking::begin(now));
            self.doubts.insert((now, place));
        }
    }

    /// Returns members that are to be asked now whether they are still there, at most `most`.
    pub fn doubts(&self, now: u64, most: usize) -> Vec<Doubt> {
        let due = self.doubts.iter().take_while(|(at, _)| *at <= now);
        due.take(most).map(|(_, doubt)| *doubt).collect()
    }

    /// Notes that a member was asked, or that its port had no room for the query: then it is asked
    /// again, and stays a member if that goes on. After the last query it is one no longer, unless
    /// it answers.
    pub fn doubted(&mut self, place: Doubt, was_asked: bool, now: u64) {
        let members = self.members.get_mut(&(place.vlan, place.group));
        let Some(member) = members.and_then(|members| members.get_mut(&place.port)) else { return };
        // The member may have answered meanwhile.
        let Some(asking) = member.doubt.take() else { return };
        self.doubts.remove(&(asking.next, place));
        match asking.after(was_asked, now) {
            After::Ask(again) => {
                member.doubt = Some(again);
                self.doubts.insert((again.next, place));
            }
            After::Stays => {}
            After::EndsAt(end) => {
                self.looks.remove(&(member.look, place));
                member.until = member.until.min(end);
                member.look = member.until;
                self.looks.insert((member.look, place));
            }
        }
    }

    /// Removes routers whose time is over, and looks at the `most` next members whose time may be
    /// over. Returns whether there are more.
    pub fn expire(&mut self, now: u64, most: usize) -> bool {
        let mut expired = false;
        for state in self.ports.iter_mut().flatten() {
            if state.router_until != 0 && state.router_until <= now {
                state.router_until = 0;
                expired = true;
            }
        }
        let is_due = |looks: &BTreeSet<(u64, Doubt)>| looks.first().is_some_and(|(at, _)| *at <= now);
        for _ in 0..most {
            if !is_due(&self.looks) {
                break;
            }
            let Some((_, place)) = self.looks.pop_first() else { break };
            expired |= self.look_at(place, now);
        }
        self.changes += u64::from(expired);
        is_due(&self.looks)
    }

    /// Removes a member if its time is over, or notes when to look at it again. Returns whether it
    /// was removed.
    fn look_at(&mut self, place: Doubt, now: u64) -> bool {
        let key = (place.vlan, place.group);
        let members = self.members.get_mut(&key);
        let Some(member) = members.and_then(|members| members.get_mut(&place.port)) else { return false };
        if now < member.until {
            member.look = member.until;
            self.looks.insert((member.look, place));
            return false;
        }
        self.remove(place);
        if let Some(state) = self.port_mut(place.port) {
            state.groups.remove(&key);
        }
        true
    }

    /// Returns the ports that take a frame to a group in a VLAN, or a report if there is none.
    pub(super) fn audience(&self, vlan: u16, group: Option<IpAddr>, now: u64) -> Audience<'_> {
        let members = group.and_then(|group| self.members.get(&(vlan, group)));
        Audience { groups: self, is_report: group.is_none(), members, now }
    }

    /// Returns the number of changes of the list so far.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Returns the first `most` groups with their members.
    pub fn list(&self, most: usize, now: u64) -> Listing {
        let of_group = |((vlan, group), members): (&(u16, IpAddr), &BTreeMap<PortId, Member>)| {
            let there = members.iter().filter(|(_, member)| now < member.until);
            (*vlan, *group, there.map(|(port, _)| *port).collect())
        };
        let is_router = |(_, port): &(PortId, &Option<PortState>)| {
            port.as_ref().is_some_and(|port| now < port.router_until)
        };
        let ports = (0..).map(PortId).zip(&self.ports);
        Listing {
            groups: self.members.iter().take(most).map(of_group).collect(),
            more: self.members.len().saturating_sub(most),
            routers: ports.filter(is_router).map(|(port, _)| port).collect(),
        }
    }
}

#[cfg(test)]
#[path = "groups_tests.rs"]
mod tests;
