//! Frames for group addresses: their receivers in the sender's VLAN.

use std::net::IpAddr;

use taut_uplink::team::{may_be_statement, statement};

use super::{Admitted, Forwarder};
use crate::net::ethernet::TAG;
use crate::net::multicast::{self, Kind, MOST_READ, Message};
use crate::port::Body;
use crate::snooping::Snooping;
use crate::switch::index::MemberIdx;

/// Receivers of a frame, among the members of its VLAN.
enum Receivers {
    All,
    /// Those that take the frames of this group.
    Group(IpAddr),
    /// Those that lead to multicast routers.
    Routers,
}

impl Forwarder<'_> {
    /// Delivers a frame for a group address to the members of its VLAN that `takes` accepts and
    /// that the group has.
    pub(super) fn deliver_to_group(&mut self, frame: &Admitted<'_>, takes: impl Fn(&MemberIdx) -> bool) {
        let segment = self.segment;
        let members = segment.in_vlan(frame.vlan).filter(|member| takes(member));
        let Some(snooping) = segment.snooping() else {
            members.for_each(|member| self.deliver_or_drop(member, frame));
            return;
        };
        let group = match self.receivers(snooping, frame) {
            Receivers::All => return members.for_each(|member| self.deliver_or_drop(member, frame)),
            Receivers::Group(group) => Some(group),
            Receivers::Routers => None,
        };
        // Copies are made after the look at the group: its lock must not be held with a queue's.
        let mut chosen = std::mem::take(&mut self.work.chosen);
        snooping.choose(frame.vlan, group, self.now, |audience| {
            chosen.extend(members.filter(|member| audience.has(segment.member(*member).port.id)));
        });
        chosen.drain(..).for_each(|member| self.deliver_or_drop(member, frame));
        self.work.chosen = chosen;
    }

    /// Returns the receivers of a frame. A message about membership is read and noted before.
    fn receivers(&mut self, snooping: &Snooping, frame: &Admitted<'_>) -> Receivers {
        let first = frame.frame.first_bytes();
        let plain = |kind| match kind {
            Kind::Group(group) => Receivers::Group(group),
            Kind::All | Kind::Message => Receivers::All,
        };
        match multicast::kind(first, &frame.frame.ethernet) {
            Kind::Message => match self.hear(snooping, frame) {
                Some(Message::Report { .. }) => Receivers::Routers,
                Some(Message::Query | Message::Router) => Receivers::All,
                None => plain(multicast::plain_kind(first, &frame.frame.ethernet)),
            },
            kind => plain(kind),
        }
    }

    /// Notes what the sender of a frame states about its IP address, on a vSwitch with an uplink.
    pub(super) fn hear_statement(&mut self, frame: &Admitted<'_>) {
        let Some(heard) = self.segment.heard() else { return };
        let ethernet = &frame.frame.ethernet;
        let tag = if ethernet.tag.is_some() { TAG } else { 0 };
        // A sender of such packets completes their checksums.
        if frame.frame.header.flags != 0 || !may_be_statement(frame.frame.first_bytes(), tag) {
            return;
        }
        let bytes = read_bytes(frame, &mut self.work.scratch.whole);
        if let Some(statement) = statement(bytes, tag) {
            let from = self.segment.member(self.sender);
            let is_own = from.uplink.is_none() && from.has_address(ethernet.src);
            heard.hear(is_own.then_some(from.port.id), frame.vlan, &statement);
        }
    }

    /// Reads a message and notes it, if it is one.
    fn hear(&mut self, snooping: &Snooping, frame: &Admitted<'_>) -> Option<Message> {
        let from = self.segment.member(self.sender).port.id;
        let frame_bytes = read_bytes(frame, &mut self.work.scratch.whole);
        let records = &mut self.work.records;
        let is_summed = frame.frame.header.flags == 0;
        let message = multicast::read(frame_bytes, &frame.frame.ethernet, is_summed, records)?;
        snooping.hear(from, frame.vlan, message, records, self.now);
        // A message with many groups takes the time of as many frames.
        self.pieces += records.len();
        Some(message)
    }
}

/// Returns the first bytes of a frame, [`MOST_READ`] at most. Those in guest memory are copied to
/// `space`.
fn read_bytes<'b>(frame: &'b Admitted<'_>, space: &'b mut [u8]) -> &'b [u8] {
    match &frame.frame.body {
        Body::Guest(guest) => {
            let space = &mut space[..frame.frame.len.min(MOST_READ)];
            let copied = guest.copy_to(space);
            &space[..copied]
        }
        Body::Host(bytes) => &bytes[..bytes.len().min(MOST_READ)],
    }
}
