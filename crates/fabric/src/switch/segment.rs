//! A segment: the ports of one vSwitch, and the tables by which frames find them.

use std::sync::Arc;
use std::time::Instant;

use taut_api::fabric::config::{PortConfig, PortKind, SegmentId};
use taut_uplink::team::Proof;

use super::addresses::set_addresses;
use super::heard::Heard;
use super::index::MemberIdx;
use super::learned::Learned;
use super::mac_table::{Key, MacTable};
use super::member::{AddressBy, Member, mirrors};
use super::outside::{Outside, UplinkTable};
use crate::net::ethernet::{Ethernet, MacKey};
use crate::port::Port;
use crate::snooping::Snooping;

/// A vSwitch. A frame leaves neither its segment nor its VLAN; its copies for mirrors may leave the
/// VLAN.
#[derive(Debug, Default)]
pub struct Segment {
    id: SegmentId,
    /// The segment's ports.
    pub members: Vec<Member>,
    /// The member that has each address, by configuration or because its driver has set it.
    table: MacTable,
    /// At least one member is a trunk.
    has_trunks: bool,
    /// Members by VLAN, without uplinks: access ports in the order of their VLANs, then trunks.
    by_vlan: Vec<MemberIdx>,
    /// Number of access ports in `by_vlan`.
    access: usize,
    /// Members that receive frames for other members.
    promiscuous: Vec<MemberIdx>,
    /// Members that receive frames for unknown addresses.
    flood_targets: Vec<MemberIdx>,
    /// Members that lead outside, and the teams that use them.
    uplink_table: UplinkTable,
    /// Addresses seen in frames of members that may use more than the configured one.
    learned: Option<Arc<Learned>>,
    /// The member that each port number has; empty if nothing is learned.
    by_port: Vec<MemberIdx>,
    /// Members of multicast groups; `None` if their frames go to all ports.
    snooping: Option<Arc<Snooping>>,
}

impl Segment {
    /// Builds the segment of these ports. Learned addresses of its predecessor stay if they are
    /// valid.
    pub(super) fn new(
        id: SegmentId,
        ports: &[(&PortConfig, &Arc<Port>)],
        outside: &Outside,
        snooping: Option<&Arc<Snooping>>,
        before: Option<&Self>,
    ) -> Self {
        let mut members: Vec<_> =
            ports.iter().map(|(config, port)| Member::new(config, port, outside)).collect();
        for (member, (config, _)) in members.iter_mut().zip(ports) {
            member.mirrors = mirrors(config, ports);
            member.is_watched = member.captures.any() || !member.mirrors.is_empty();
        }
        let set = set_addresses(ports, &mut members);
        let all = || (0..).map(MemberIdx).zip(&members);
        let indexed = || all().filter(|(_, member)| member.port.kind != PortKind::Uplink);
        let of_port = |port| all().find(|(_, member)| member.port.id == port).map(|(index, _)| index);
        let set = set.into_iter().zip((0..).map(MemberIdx));
        let set = set.filter_map(|(mac, index)| Some((members[index.index()].table_key(mac?), index)));
        let entries: Vec<_> =
            indexed().map(|(index, member)| (member.table_key(member.mac), index)).chain(set).collect();
        let which = |is: &dyn Fn(&Member) -> bool| -> Vec<MemberIdx> {
            indexed().filter(|(_, member)| is(member)).map(|(index, _)| index).collect()
        };
        let mut by_vlan = which(&|member| !member.vlan.is_trunk());
        by_vlan.sort_by_key(|&index| members[index.index()].access_vlan());
        let access = by_vlan.len();
        let trunks = which(&|member| member.vlan.is_trunk());
        by_vlan.extend(&trunks);
        let before = before.and_then(|segment| segment.learned.as_ref());
        let learned = Learned::new(ports.iter().map(|(config, _)| *config), before);
        Self {
            id,
            table: MacTable::new(&entries),
            has_trunks: !trunks.is_empty(),
            by_vlan,
            access,
            promiscuous: which(&|member| member.security.promiscuous),
            flood_targets: which(&|member| member.security.promiscuous || member.learns()),
            uplink_table: UplinkTable::new(outside, of_port),
            by_port: if learned.is_some() { by_port(&members) } else { Vec::new() },
            learned,
            snooping: snooping.cloned(),
            members,
        }
    }

    /// The segment's id.
    pub(super) fn id(&self) -> SegmentId {
        self.id
    }

    /// The member with this index.
    #[inline]
    pub fn member(&self, index: MemberIdx) -> &Member {
        &self.members[index.index()]
    }

    /// Returns whether a member leads outside.
    #[inline]
    pub fn has_uplinks(&self) -> bool {
        self.uplink_table.any()
    }

    /// Returns the members of multicast groups; `None` if their frames go to all ports.
    #[inline]
    pub fn snooping(&self) -> Option<&Snooping> {
        self.snooping.as_deref()
    }

    /// Returns the IP addresses that ports have stated; `None` without an uplink, where nobody
    /// needs them.
    #[inline]
    pub fn heard(&self) -> Option<&Heard> {
        self.has_uplinks().then(|| self.uplink_table.heard())
    }

    /// Returns whether an address is that of an uplink's card.
    pub fn has_card(&self, mac: MacKey) -> bool {
        self.uplink_table.members().any(|uplink| self.member(uplink).card == mac)
    }

    /// Returns what a frame that arrived at an uplink proves for the path of that uplink; `None`
    /// for a frame that is not for the fabric itself. `head` is the beginning of the frame.
    #[inline]
    pub fn proof(&self, arrived: MemberIdx, frame: &Ethernet, head: &[u8]) -> Option<Proof> {
        let Member { uplink, card, vlan, .. } = self.member(arrived);
        self.uplink_table.proof((*uplink)?, *card, vlan.ingress(frame.tag).ok()?, frame, head)
    }

    /// Returns the uplink for a frame of a member that begins with `start`; `None` if no uplink of
    /// its team has a link.
    pub fn way_out(&self, from: MemberIdx, start: &[u8]) -> Option<MemberIdx> {
        self.uplink_table.choose(self.member(from).way?, start)
    }

    /// Returns whether a member takes a frame for `to` from this sender. It takes frames from
    /// outside from the uplink that it uses itself, so a switch that floods causes no duplicates.
    #[inline]
    pub fn takes(&self, member: MemberIdx, sender: MemberIdx, to: MacKey) -> bool {
        let Some(arrived) = self.member(sender).uplink else { return true };
        let Member { way, mac, .. } = self.member(member);
        way.is_some_and(|way| self.uplink_table.takes(way, arrived, to, *mac))
    }

    /// The members that take part in a VLAN, without uplinks.
    pub fn in_vlan(&self, vlan: u16) -> impl Iterator<Item = MemberIdx> {
        let (access, trunks) = self.by_vlan.split_at(self.access);
        let vlan_of = |index: &MemberIdx| self.member(*index).access_vlan();
        let first = access.partition_point(|index| vlan_of(index) < Some(vlan));
        let access = access[first..].iter().take_while(move |index| vlan_of(index) == Some(vlan));
        access.chain(self.admitting(trunks, vlan)).copied()
    }

    /// The members of a VLAN that receive frames for other members.
    pub fn promiscuous(&self, vlan: u16) -> impl Iterator<Item = MemberIdx> {
        self.admitting(&self.promiscuous, vlan).copied()
    }

    /// The members of a VLAN that receive frames for unknown addresses.
    pub fn flood_targets(&self, vlan: u16) -> impl Iterator<Item = MemberIdx> {
        self.admitting(&self.flood_targets, vlan).copied()
    }

    fn admitting<'s>(&'s self, members: &'s [MemberIdx], vlan: u16) -> impl Iterator<Item = &'s MemberIdx> {
        members.iter().filter(move |&&index| self.member(index).vlan.admits(vlan))
    }

    /// The member that has an address in a VLAN, by the table or else by what it sent.
    #[inline]
    pub fn find(&self, vlan: u16, mac: MacKey, now: Instant) -> Option<MemberIdx> {
        if let Some(member) = self.in_table(vlan, mac) {
            return self.member(member).has_address(mac).then_some(member);
        }
        self.learned(vlan, mac, now)
    }

    /// The member for which an address is configured in a VLAN, or whose driver has set it.
    #[inline]
    fn in_table(&self, vlan: u16, mac: MacKey) -> Option<MemberIdx> {
        let admits = |member: &MemberIdx| self.member(*member).vlan.admits(vlan);
        match self.table.find(Key::new(vlan, mac)) {
            None if self.has_trunks => self.table.find(Key::everywhere(mac)).filter(admits),
            found => found,
        }
    }

    /// The member that last sent from an address in a VLAN.
    fn learned(&self, vlan: u16, mac: MacKey, now: Instant) -> Option<MemberIdx> {
        let learned = self.learned.as_ref()?;
        let second = learned.second(now);
        let port = match learned.find(Key::new(vlan, mac), second) {
            None if self.has_trunks => learned.find(Key::everywhere(mac), second),
            found => found,
        }?;
        // An entry may be newer or older than this configuration.
        let member = *self.by_port.get(usize::from(port.0))?;
        let owner = self.members.get(member.index())?;
        let learns = owner.learns() || owner.address_by == AddressBy::Frames;
        (owner.vlan.admits(vlan) && learns).then_some(member)
    }

    /// Learns an address behind a learning port. Addresses of the table are never learned
    /// elsewhere.
    pub(super) fn learn(&self, from: &Member, vlan: u16, src: MacKey, now: Instant) {
        if let Some(learned) = &self.learned
            && src.is_assignable()
            && self.in_table(vlan, src).is_none()
        {
            learned.learn(from.port.id, Key::new(vlan, src), learned.second(now));
        }
    }

    /// Makes `src` the address of a port whose address follows its frames. Returns `false` if the
    /// port must not have it, for instance because it is another port's.
    pub(super) fn adopt(&self, from: &Member, vlan: u16, src: MacKey, now: Instant) -> bool {
        let Some(learned) = &self.learned else { return src == from.mac };
        let adopted = src == from.mac
            || src.is_assignable()
                && self.in_table(vlan, src).is_none()
                && learned.learn(from.port.id, from.key(vlan, src), learned.second(now));
        if adopted {
            // Several workers may serve one port: the one that replaces an address forgets it.
            let before = from.port.address.replace(src, from.mac);
            if before != src && before != from.mac {
                learned.forget(from.port.id, from.key(vlan, before));
            }
        }
        adopted
    }
}

fn by_port(members: &[Member]) -> Vec<MemberIdx> {
    let mut table = Vec::new();
    for (member, index) in members.iter().zip((0..).map(MemberIdx)) {
        let port = usize::from(member.port.id.0);
        if table.len() <= port {
            table.resize(port + 1, MemberIdx::NONE);
        }
        table[port] = index;
    }
    table
}
