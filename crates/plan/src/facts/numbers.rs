//! Numbers of ports and segments. `network::numbering` assigns them.

use std::collections::BTreeMap;

use taut_api::Name;
use taut_api::fabric::PortId;
use taut_api::fabric::config::SegmentId;

use super::owner::Owner;

/// The number of each port and of each vSwitch's segment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Numbers {
    /// Port numbers by the text of the port's [`Owner`].
    pub ports: BTreeMap<String, u16>,
    /// Segment numbers by the vSwitch's name.
    pub segments: BTreeMap<String, u16>,
}

impl Numbers {
    /// The number of a port.
    pub fn port(&self, owner: &Owner) -> Option<PortId> {
        self.ports.get(&owner.to_string()).copied().map(PortId)
    }

    /// The number of a vSwitch's segment.
    pub fn segment(&self, vswitch: &Name) -> Option<SegmentId> {
        self.segments.get(vswitch.as_str()).copied().map(SegmentId)
    }
}
