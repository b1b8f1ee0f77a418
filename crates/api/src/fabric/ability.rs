//! Abilities of a fabric: daemon and fabric may be of different versions.
//!
//! A new ability is one line here. The fabric tells all of its own, and the daemon sends a message
//! that needs one only to a fabric that has told of it.

use std::fmt;

use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

macro_rules! abilities {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal,)+) => {
        /// Ability of a fabric.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Ability {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl Ability {
            /// All abilities.
            const ALL: &[Self] = &[$(Self::$variant,)+];

            /// Returns the name in messages, which never changes.
            const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }
        }
    };
}

abilities! {
    /// Answers [`ToFabric::Ping`](super::ToFabric::Ping).
    AnswersPings = "answers_pings",
    /// Knows [`PortKind::Uplink`](super::config::PortKind::Uplink) and
    /// [`Attachment::Packet`](super::message::Attachment::Packet).
    Uplinks = "has_uplinks",
    /// Knows [`TeamPolicy::Load`](crate::teaming::TeamPolicy::Load).
    BalancesLoad = "balances_load",
    /// Knows [`PortKind::Netdev`](super::config::PortKind::Netdev).
    Netdevs = "has_netdevs",
    /// Knows [`ToFabric::Capture`](super::ToFabric::Capture).
    Captures = "has_captures",
    /// Knows [`FabricConfig::network_io`](super::FabricConfig::network_io). A fabric without it
    /// ignores that configuration.
    NetworkIo = "has_network_io",
    /// Asks gateways with IPv6 addresses ([`PathProbe::Gateway`](crate::PathProbe::Gateway)).
    AsksIpv6 = "asks_ipv6",
    /// Knows [`Attachment::Xdp`](super::message::Attachment::Xdp).
    Xdp = "has_xdp",
    /// Takes sockets of further queues with
    /// [`Attachment::Xdp`](super::message::Attachment::Xdp).
    XdpQueues = "has_xdp_queues",
    /// Knows [`ToFabric::QueuePairMemory`](super::ToFabric::QueuePairMemory).
    QueuePairs = "has_queue_pairs",
    /// Knows [`QueuePairMemory::ring`](super::config::QueuePairMemory::ring). A fabric without it
    /// ignores that length, and takes rings to have at most 256 KiB.
    LongRings = "has_long_rings",
}

/// Set of abilities. In messages it is an object with a member for each of them, whose value is
/// true. Other members and abilities of later versions are ignored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Abilities(u64);

impl Abilities {
    /// Returns the set of all abilities.
    pub fn all() -> Self {
        Ability::ALL.iter().copied().collect()
    }

    /// Returns whether an ability is in the set.
    pub const fn has(self, ability: Ability) -> bool {
        self.0 & Self::bit(ability) != 0
    }

    /// Returns the set with another ability.
    #[must_use]
    pub const fn with(self, ability: Ability) -> Self {
        Self(self.0 | Self::bit(ability))
    }

    const fn bit(ability: Ability) -> u64 {
        1 << ability as u32
    }
}

impl FromIterator<Ability> for Abilities {
    fn from_iter<I: IntoIterator<Item = Ability>>(abilities: I) -> Self {
        abilities.into_iter().fold(Self::default(), Self::with)
    }
}

impl Serialize for Abilities {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for ability in Ability::ALL.iter().filter(|ability| self.has(**ability)) {
            map.serialize_entry(ability.name(), &true)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Abilities {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Names)
    }
}

struct Names;

impl<'de> Visitor<'de> for Names {
    type Value = Abilities;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with abilities")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Abilities, A::Error> {
        let mut abilities = Abilities::default();
        while let Some(name) = map.next_key::<String>()? {
            match Ability::ALL.iter().find(|ability| ability.name() == name) {
                Some(ability) if map.next_value()? => abilities = abilities.with(*ability),
                Some(_) => {}
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(abilities)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::FromFabric;

    fn welcome(abilities: Abilities) -> FromFabric {
        FromFabric::Welcome { protocol: 1, version: String::new(), pid: 7, revision: 3, abilities }
    }

    #[test]
    fn a_fabric_of_another_version_tells_its_abilities_among_other_members() {
        let read = |text: &str| serde_json::from_str::<FromFabric>(text).unwrap();
        let before = r#"{"type": "welcome", "protocol": 1, "pid": 7, "revision": 3}"#;
        assert_eq!(read(before), welcome(Abilities::default()));
        let earlier = r#"{"type": "welcome", "protocol": 1, "version": "", "pid": 7, "revision": 3,
            "answers_pings": true, "has_uplinks": true, "has_xdp": false}"#;
        let two = Abilities::from_iter([Ability::AnswersPings, Ability::Uplinks]);
        assert_eq!(read(earlier), welcome(two));
        assert!(two.has(Ability::Uplinks) && !two.has(Ability::Xdp));
        let later = r#"{"type": "welcome", "protocol": 1, "pid": 7, "revision": 3, "has_xdp": true,
            "flies": true, "rings": {"most": 9}}"#;
        assert_eq!(read(later), welcome(Abilities::from_iter([Ability::Xdp])));
    }

    #[test]
    fn a_daemon_of_an_earlier_version_reads_each_ability_as_a_member_of_its_own() {
        let told = serde_json::to_value(welcome(Abilities::all())).unwrap();
        for name in [
            "answers_pings",
            "has_uplinks",
            "balances_load",
            "has_netdevs",
            "has_captures",
            "has_network_io",
            "asks_ipv6",
            "has_xdp",
            "has_xdp_queues",
            "has_queue_pairs",
            "has_long_rings",
        ] {
            assert_eq!(told[name], true, "{name}");
        }
        assert_eq!(serde_json::from_value::<FromFabric>(told).unwrap(), welcome(Abilities::all()));
    }
}
