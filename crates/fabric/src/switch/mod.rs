//! The switch: segments of ports, and the rules for frames between them.
//!
//! Addresses are configured: a frame to a known address is never flooded, and a frame from an
//! address that is not its sender's is refused. A port group may permit more: a port that changes
//! its address, or a port with many addresses behind it. Such addresses are in [`learned`]. All
//! other addresses are [`outside`], if the segment has an uplink.
//!
//! A [`Switch`] is immutable. A new configuration is a new switch, which workers take up between
//! bursts; learned addresses pass from one switch to the next.

mod addresses;
pub mod flow_cache;
pub mod forward;
pub mod heard;
pub mod index;
pub mod learned;
pub mod mac_table;
pub mod member;
pub mod outside;
pub mod policy;
pub mod segment;
pub mod target;
pub mod vlan;

use std::collections::BTreeMap;
use std::sync::Arc;

use taut_api::fabric::config::{PortConfig, SegmentId};

use crate::port::Port;
use crate::snooping::Snooping;
use index::SegmentIdx;
use outside::Outside;
use segment::Segment;

/// All segments.
#[derive(Debug, Default)]
pub struct Switch {
    /// The segments, in the order of their ids.
    pub segments: Vec<Segment>,
}

impl Switch {
    /// Puts ports on their segments. `outsides` has the uplinks of segments and the ways to them,
    /// `snooping` the groups of segments that follow them.
    ///
    /// Addresses of ports with a VLAN in common must differ. Addresses that were learned in the
    /// switch `before` stay valid for ports whose configuration does not change.
    pub fn new<'a>(
        ports: impl Iterator<Item = (&'a PortConfig, &'a Arc<Port>)>,
        outsides: &BTreeMap<SegmentId, Outside>,
        snooping: &BTreeMap<SegmentId, Arc<Snooping>>,
        before: &Self,
    ) -> Self {
        let mut segments = BTreeMap::<SegmentId, Vec<(&PortConfig, &Arc<Port>)>>::new();
        for (config, port) in ports {
            segments.entry(config.segment).or_default().push((config, port));
        }
        let none = Outside::default();
        let segment = |(id, ports): (SegmentId, Vec<_>)| {
            let before = before.segments.iter().find(|segment| segment.id() == id);
            Segment::new(id, &ports, outsides.get(&id).unwrap_or(&none), snooping.get(&id), before)
        };
        Self { segments: segments.into_iter().map(segment).collect() }
    }

    /// The segment with this index.
    #[inline]
    pub fn segment(&self, index: SegmentIdx) -> &Segment {
        &self.segments[index.index()]
    }
}
