//! Teaming: the uplinks of a vSwitch that its ports use, and what follows when one loses its link
//! (row VN-3; ESX: *Teaming and failover*).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Name, PathProbe};

/// Rule by which a port chooses one of several uplinks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TeamPolicy {
    /// By the port: ports are dealt to the uplinks (ESX: `loadbalance_srcid`).
    #[default]
    PortId,
    /// By the source address of each frame (ESX: `loadbalance_srcmac`).
    SourceMac,
    /// By the IP addresses of each frame (ESX: `loadbalance_ip`). The physical switch has to treat
    /// the uplinks as one static channel.
    IpHash,
    /// The first uplink that has a link (ESX: `failover_explicit`).
    Explicit,
    /// By the port, until an uplink is busy: then its busiest port moves to another one (ESX:
    /// `loadbalance_loadbased`, of distributed switches only).
    Load,
}

impl TeamPolicy {
    /// All rules.
    pub const ALL: [Self; 5] = [Self::PortId, Self::SourceMac, Self::IpHash, Self::Explicit, Self::Load];

    /// Returns the word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PortId => "port-id",
            Self::SourceMac => "source-mac",
            Self::IpHash => "ip-hash",
            Self::Explicit => "explicit",
            Self::Load => "load",
        }
    }
}

impl fmt::Display for TeamPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for TeamPolicy {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|policy| policy.as_str() == text);
        found.ok_or("write port-id, source-mac, ip-hash, explicit or load")
    }
}

/// Teaming of a vSwitch, or of a port group that differs from it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Teaming {
    /// Rule by which a port chooses an uplink.
    pub policy: TeamPolicy,
    /// Uplinks that are used as long as they have a link, the first one first. Absent: all uplinks
    /// of the vSwitch that are not in standby, in the order of their names. An uplink in neither
    /// list is not used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active: Option<Vec<Name>>,
    /// Uplinks that replace active ones without a link, the first one first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub standby: Vec<Name>,
    /// An active uplink whose link comes back is used at once. If false, it waits until another one
    /// fails.
    pub failback: bool,
    /// Physical switches are told by RARP where ports are, when a port appears and when its uplink
    /// changes. Hosts are told by gratuitous ARP and neighbour advertisements of the `ip` of a
    /// document, and of addresses that guests have stated.
    pub notify_switches: bool,
    /// Probes of uplinks whose links are up.
    pub probe: PathProbe,
}

impl Default for Teaming {
    fn default() -> Self {
        Self {
            policy: TeamPolicy::default(),
            active: None,
            standby: Vec::new(),
            failback: true,
            notify_switches: true,
            probe: PathProbe::Off,
        }
    }
}

impl Teaming {
    /// Returns whether nothing differs from the defaults.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the uplinks that are named, the active ones first.
    pub fn named(&self) -> impl Iterator<Item = &Name> {
        self.active.iter().flatten().chain(&self.standby)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_have_the_same_words_everywhere() {
        for policy in TeamPolicy::ALL {
            assert_eq!(policy.as_str().parse(), Ok(policy));
            assert_eq!(serde_json::to_value(policy).unwrap(), policy.to_string());
        }
        assert!("loadbalance_ip".parse::<TeamPolicy>().unwrap_err().contains("ip-hash"));
    }

    #[test]
    fn what_is_absent_is_the_default() {
        let teaming: Teaming = serde_json::from_str(r#"{ "standby": ["eth2"], "failback": false }"#).unwrap();
        let expected =
            Teaming { standby: vec!["eth2".parse().unwrap()], failback: false, ..Teaming::default() };
        assert_eq!(teaming, expected);
        assert!(!teaming.is_default() && Teaming::default().is_default());
        assert_eq!(teaming.named().map(Name::as_str).collect::<Vec<_>>(), ["eth2"]);
        assert!(serde_json::from_str::<Teaming>(r#"{ "beacon": true }"#).is_err());
    }
}
