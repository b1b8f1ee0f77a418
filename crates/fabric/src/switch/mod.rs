//! The switch: segments of ports that know each other's addresses, and what may pass between them.
//!
//! Addresses are configured: a known address is never flooded, and one that is not a sender's own is refused. What a port
//! group permits beyond that is noted in [`learned`]: a port that changes its address, ports behind which there are many.
//! A [`Switch`] is never changed; a new configuration is a new one, which workers take up between bursts. What was
//! learnt goes from one to the next.

pub mod flow_cache;
pub mod forward;
pub mod learned;
pub mod mac_table;
pub mod policy;
pub mod target;
pub mod vlan;

use std::collections::BTreeMap;
use std::sync::Arc;

use taut_api::fabric::config::{PortConfig, SegmentId};
use taut_api::network::Security;

use crate::net::ethernet::MacKey;
use crate::port::Port;
use learned::Learned;
use mac_table::{Key, MacTable};
use vlan::PortVlan;

/// All segments.
#[derive(Debug, Default)]
pub struct Switch {
    /// The segments, in the order of their numbers.
    pub segments: Vec<Segment>,
}

/// A vSwitch. Frames never leave it, nor the VLAN that they are in.
#[derive(Debug, Default)]
pub struct Segment {
    id: SegmentId,
    /// Its ports.
    pub members: Vec<Member>,
    /// Their addresses, and the index of the member that has each.
    table: MacTable,
    /// Is any of them a trunk?
    has_trunks: bool,
    /// Members by VLAN: access ports in its order, then trunks.
    by_vlan: Vec<u32>,
    /// How many of them are access ports.
    access: usize,
    /// Members that see frames for others.
    promiscuous: Vec<u32>,
    /// Members that get frames for addresses that nobody is known to have.
    flood_targets: Vec<u32>,
    /// What ports were seen to send from, where that counts.
    learned: Option<Arc<Learned>>,
    /// Index of the member by number of its port; only where something is learnt.
    by_port: Vec<u32>,
}

/// A port on a segment.
#[derive(Debug)]
pub struct Member {
    /// The port.
    pub port: Arc<Port>,
    /// Its configured address.
    pub mac: MacKey,
    /// Its VLANs.
    pub vlan: PortVlan,
    /// What it may do.
    pub security: Security,
    /// Segments are merged for it, if it takes them.
    pub lro: bool,
    /// Addresses behind it are learnt, if it may send from them.
    mac_learning: bool,
}

impl Member {
    fn new(config: &PortConfig, port: &Arc<Port>) -> Self {
        let member = Self {
            port: Arc::clone(port),
            mac: config.mac.into(),
            vlan: PortVlan::from(&config.vlan),
            security: config.security,
            lro: config.lro,
            mac_learning: config.mac_learning.is_some(),
        };
        if !member.moves() {
            port.address.reset();
        }
        member
    }
}

impl Switch {
    /// Puts ports on their segments. Addresses of ports that have a VLAN in common must differ. What was learnt in the switch
    /// `before` goes on to hold for ports that stay as they are.
    pub fn new<'a>(ports: impl Iterator<Item = (&'a PortConfig, &'a Arc<Port>)>, before: &Self) -> Self {
        let mut segments = BTreeMap::<SegmentId, Vec<(&PortConfig, &Arc<Port>)>>::new();
        for (config, port) in ports {
            segments.entry(config.segment).or_default().push((config, port));
        }
        let segment = |(id, ports): (SegmentId, Vec<_>)| {
            let before = before.segments.iter().find(|segment| segment.id == id);
            Segment::new(id, &ports, before.and_then(|segment| segment.learned.as_ref()))
        };
        Self { segments: segments.into_iter().map(segment).collect() }
    }
}

impl Segment {
    fn new(id: SegmentId, ports: &[(&PortConfig, &Arc<Port>)], before: Option<&Arc<Learned>>) -> Self {
        let members: Vec<_> = ports.iter().map(|(config, port)| Member::new(config, port)).collect();
        let entries: Vec<_> = members
            .iter()
            .zip(0..)
            .map(|(member, index)| match member.vlan {
                PortVlan::Access(vlan) => (Key::new(vlan, member.mac), index),
                PortVlan::Trunk(_) => (Key::everywhere(member.mac), index),
            })
            .collect();
        let which = |is: &dyn Fn(&Member) -> bool| -> Vec<u32> {
            members.iter().zip(0..).filter(|(member, _)| is(member)).map(|(_, index)| index).collect()
        };
        let mut by_vlan = which(&|member| !member.vlan.is_trunk());
        by_vlan.sort_by_key(|&index| members[index as usize].access_vlan());
        let access = by_vlan.len();
        let trunks = which(&|member| member.vlan.is_trunk());
        by_vlan.extend(&trunks);
        let learned = Learned::new(ports.iter().map(|(config, _)| *config), before);
        Self {
            id,
            table: MacTable::new(&entries),
            has_trunks: !trunks.is_empty(),
            by_vlan,
            access,
            promiscuous: which(&|member| member.security.promiscuous),
            flood_targets: which(&|member| member.security.promiscuous || member.learns()),
            by_port: if learned.is_some() { by_port(&members) } else { Vec::new() },
            learned,
            members,
        }
    }

    /// Members that take part in a VLAN.
    pub fn in_vlan(&self, vlan: u16) -> impl Iterator<Item = u32> {
        let (access, trunks) = self.by_vlan.split_at(self.access);
        let vlan_of = |index: &u32| self.members[*index as usize].access_vlan();
        let first = access.partition_point(|index| vlan_of(index) < Some(vlan));
        let access = access[first..].iter().take_while(move |index| vlan_of(index) == Some(vlan));
        access.chain(self.admitting(trunks, vlan)).copied()
    }

    /// Members of a VLAN that see frames for others.
    pub fn promiscuous(&self, vlan: u16) -> impl Iterator<Item = u32> {
        self.admitting(&self.promiscuous, vlan).copied()
    }

    /// Members of a VLAN that get frames for addresses that nobody is known to have.
    pub fn flood_targets(&self, vlan: u16) -> impl Iterator<Item = u32> {
        self.admitting(&self.flood_targets, vlan).copied()
    }

    fn admitting<'s>(&'s self, members: &'s [u32], vlan: u16) -> impl Iterator<Item = &'s u32> {
        members.iter().filter(move |&&index| self.members[index as usize].vlan.admits(vlan))
    }
}

impl Member {
    const fn access_vlan(&self) -> Option<u16> {
        match self.vlan {
            PortVlan::Access(vlan) => Some(vlan),
            PortVlan::Trunk(_) => None,
        }
    }
}

fn by_port(members: &[Member]) -> Vec<u32> {
    let mut table = Vec::new();
    for (member, index) in members.iter().zip(0..) {
        let port = usize::from(member.port.id.0);
        if table.len() <= port {
            table.resize(port + 1, u32::MAX);
        }
        table[port] = index;
    }
    table
}
