//! The switch: segments of ports that know each other's addresses, and what may pass between them.
//!
//! Addresses are configured, not learnt: a known address is never flooded, an unknown one reaches promiscuous ports
//! only, and an address that is not a sender's own is refused. A [`Switch`] is never changed; a new configuration is a
//! new one, which workers take up between bursts.

pub mod checksum;
pub mod ethernet;
pub mod flow_hash;
pub mod forward;
pub mod mac_table;
pub mod policy;
pub mod software_offload;

use std::collections::BTreeMap;
use std::sync::Arc;

use taut_api::fabric::config::{PortConfig, SegmentId};
use taut_api::network::Security;

use crate::port::Port;
use ethernet::MacKey;
use mac_table::MacTable;

/// All segments.
#[derive(Debug, Default)]
pub struct Switch {
    /// The segments, in the order of their numbers.
    pub segments: Vec<Segment>,
}

/// A broadcast domain. Frames never leave it.
#[derive(Debug, Default)]
pub struct Segment {
    /// Its ports.
    pub members: Vec<Member>,
    /// Their addresses, and the index of the member that has each.
    pub table: MacTable,
    /// Members that see frames for others.
    pub promiscuous: Vec<u32>,
}

/// A port on a segment.
#[derive(Debug)]
pub struct Member {
    /// The port.
    pub port: Arc<Port>,
    /// Its address.
    pub mac: MacKey,
    /// What it may do.
    pub security: Security,
}

impl Switch {
    /// Puts ports on their segments. Addresses within a segment must differ.
    pub fn new<'a>(ports: impl Iterator<Item = (&'a PortConfig, &'a Arc<Port>)>) -> Self {
        let mut segments = BTreeMap::<(SegmentId, String), Vec<Member>>::new();
        for (config, port) in ports {
            let member = Member { port: Arc::clone(port), mac: config.mac.into(), security: config.security };
            segments.entry((config.segment, config.vlan.to_string())).or_default().push(member);
        }
        Self { segments: segments.into_values().map(Segment::new).collect() }
    }
}

impl Segment {
    fn new(members: Vec<Member>) -> Self {
        let entries: Vec<_> = members.iter().zip(0..).map(|(member, index)| (member.mac, index)).collect();
        let promiscuous = members.iter().zip(0..).filter(|(m, _)| m.security.promiscuous).map(|(_, i)| i);
        Self { table: MacTable::new(&entries), promiscuous: promiscuous.collect(), members }
    }
}
