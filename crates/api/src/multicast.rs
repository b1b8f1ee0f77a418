//! Filtering of multicast frames on a vSwitch (ESX: *multicast filtering mode* of distributed
//! switches).

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Ports that take a frame for a multicast group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum MulticastFilter {
    /// All ports of the frame's VLAN.
    #[default]
    Basic,
    /// The ports whose guests have joined the group by IGMP or MLD, and those that lead to
    /// multicast routers.
    Snooping,
}

impl MulticastFilter {
    /// Returns whether this is the default.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Basic => "basic",
            Self::Snooping => "snooping",
        }
    }
}

impl fmt::Display for MulticastFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for MulticastFilter {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = [Self::Basic, Self::Snooping].into_iter().find(|filter| filter.as_str() == text);
        found.ok_or("write basic or snooping")
    }
}

/// A multicast group that guests have joined.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MulticastGroup {
    /// VLAN of the group; 0 for none.
    pub vlan: u16,
    /// Address of the group.
    #[schema(value_type = String, example = "239.1.1.1")]
    pub group: IpAddr,
    /// Owners of the ports that have joined it, such as `vm/web1/nic0`.
    pub members: Vec<String>,
}

/// Groups of a vSwitch with snooping.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MulticastState {
    /// The first 256 groups.
    pub groups: Vec<MulticastGroup>,
    /// Number of further groups.
    pub more_groups: u32,
    /// Owners of the ports that lead to multicast routers: these take the frames of all groups.
    pub routers: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_have_the_same_words_everywhere() {
        for filter in [MulticastFilter::Basic, MulticastFilter::Snooping] {
            assert_eq!(filter.as_str().parse(), Ok(filter));
            assert_eq!(serde_json::to_value(filter).unwrap(), filter.as_str());
            assert_eq!(filter.is_default(), filter == MulticastFilter::Basic);
        }
        assert_eq!("igmp".parse::<MulticastFilter>(), Err("write basic or snooping"));
    }
}
