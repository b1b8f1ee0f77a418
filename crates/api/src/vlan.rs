//! VLANs of port groups, in ESX's three forms.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::openapi::schema::{ObjectBuilder, OneOfBuilder, SchemaType, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::word::removes;

/// VLAN membership of a port.
///
/// Written as on ESX: 0 for none, 1 to 4094 for a VLAN in which the switch keeps the port (VST),
/// 4095 for all VLANs tagged by the guest (VGT), or ranges such as `10-20,30` for some. A trunk
/// with a single VLAN is written `20-20`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Vlan {
    /// The guest sees untagged frames; the switch keeps them in this VLAN. 0: outside any VLAN.
    Access(u16),
    /// The guest tags its frames with one of these VLANs. 0 stands for untagged frames.
    Trunk(VlanRanges),
}

/// VLANs from 0 to 4094 as inclusive ranges: at least one, in ascending order, neither overlapping
/// nor adjacent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VlanRanges(Vec<(u16, u16)>);

/// ESX's number for a port group with all VLANs.
const ALL: u16 = 4095;

impl Vlan {
    /// Highest number of a VLAN.
    pub const MAX: u16 = 4094;

    /// Returns a trunk of all VLANs, untagged frames included: ESX's 4095.
    pub fn all() -> Self {
        Self::Trunk(VlanRanges(vec![(0, Self::MAX)]))
    }

    /// Returns whether a port of this kind is in the VLAN.
    pub fn admits(&self, vlan: u16) -> bool {
        match self {
            Self::Access(own) => *own == vlan,
            Self::Trunk(ranges) => ranges.iter().any(|(first, last)| (first..=last).contains(&vlan)),
        }
    }

    /// Returns whether both have a VLAN in common.
    pub fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Access(vlan), either) | (either, Self::Access(vlan)) => either.admits(*vlan),
            (Self::Trunk(a), Self::Trunk(b)) => {
                a.iter().any(|(first, last)| b.iter().any(|(from, to)| first <= to && from <= last))
            }
        }
    }

    fn of_number(number: u64) -> Result<Self, BadVlan> {
        match u16::try_from(number) {
            Ok(ALL) => Ok(Self::all()),
            Ok(vlan) if vlan <= Self::MAX => Ok(Self::Access(vlan)),
            _ => Err(BadVlan(number.to_string())),
        }
    }
}

impl VlanRanges {
    /// Returns the union of inclusive ranges; `None` without a range, or if one is empty or ends
    /// above [`Vlan::MAX`].
    pub fn new(ranges: impl IntoIterator<Item = (u16, u16)>) -> Option<Self> {
        let mut ranges: Vec<_> = ranges.into_iter().collect();
        if ranges.is_empty() || ranges.iter().any(|&(first, last)| first > last || last > Vlan::MAX) {
            return None;
        }
        ranges.sort_unstable();
        let mut union: Vec<(u16, u16)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match union.last_mut() {
                Some((_, end)) if first <= *end + 1 => *end = last.max(*end),
                _ => union.push((first, last)),
            }
        }
        Some(Self(union))
    }

    /// Iterates over the ranges, each with its first and last VLAN.
    pub fn iter(&self) -> impl Iterator<Item = (u16, u16)> {
        self.0.iter().copied()
    }
}

impl Default for Vlan {
    fn default() -> Self {
        Self::Access(0)
    }
}

/// Why something is not a [`Vlan`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no VLAN setting: write 0 or none, 1 to 4094 (one VLAN, tagged by the switch), 4095 (all, tagged by the guest) or ranges of 0 to 4094 such as 10-20,30"
)]
pub struct BadVlan(pub String);

impl FromStr for Vlan {
    type Err = BadVlan;

    fn from_str(text: &str) -> Result<Self, BadVlan> {
        let bad = || BadVlan(text.to_owned());
        let number = |text: &str| text.trim().parse::<u16>().map_err(|_| bad());
        if removes(text) {
            return Ok(Self::default());
        }
        if !text.contains(['-', ',']) {
            return Self::of_number(number(text)?.into());
        }
        let range = |part: &str| match part.split_once('-') {
            Some((first, last)) => Ok((number(first)?, number(last)?)),
            None => number(part).map(|vlan| (vlan, vlan)),
        };
        let ranges: Vec<_> = text.split(',').map(range).collect::<Result<_, _>>()?;
        VlanRanges::new(ranges).map(Self::Trunk).ok_or_else(bad)
    }
}

impl fmt::Display for Vlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Access(vlan) => vlan.to_string(),
            Self::Trunk(_) if *self == Self::all() => ALL.to_string(),
            Self::Trunk(VlanRanges(ranges)) => {
                let alone = ranges.len() == 1;
                let range = |&(first, last): &(u16, u16)| {
                    if first == last && !alone { first.to_string() } else { format!("{first}-{last}") }
                };
                ranges.iter().map(range).collect::<Vec<_>>().join(",")
            }
        };
        f.pad(&text)
    }
}

impl Serialize for Vlan {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Access(vlan) => serializer.serialize_u16(*vlan),
            Self::Trunk(_) if *self == Self::all() => serializer.serialize_u16(ALL),
            Self::Trunk(_) => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for Vlan {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl serde::de::Visitor<'_> for Visitor {
            type Value = Vlan;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a VLAN number from 0 to 4095, or ranges such as \"10-20,30\"")
            }

            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Vlan, E> {
                Vlan::of_number(number).map_err(E::custom)
            }

            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Vlan, E> {
                let unsigned = u64::try_from(number).map_err(|_| E::custom(BadVlan(number.to_string())))?;
                self.visit_u64(unsigned)
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Vlan, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

impl PartialSchema for Vlan {
    fn schema() -> RefOr<Schema> {
        let number = ObjectBuilder::new()
            .schema_type(SchemaType::Type(Type::Integer))
            .minimum(Some(0))
            .maximum(Some(ALL))
            .description(Some(
                "0: no VLAN; 1 to 4094: the switch tags (VST); 4095: all VLANs, tagged by the guest (VGT)",
            ));
        let ranges = ObjectBuilder::new()
            .schema_type(SchemaType::Type(Type::String))
            .description(Some("VLANs from 0 to 4094 that the guest may tag its frames with; 0: untagged"))
            .examples(["10-20,30"]);
        OneOfBuilder::new().item(number).item(ranges).into()
    }
}

impl ToSchema for Vlan {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn trunk(ranges: &[(u16, u16)]) -> Vlan {
        Vlan::Trunk(VlanRanges::new(ranges.iter().copied()).unwrap())
    }

    #[test]
    fn settings_are_read_as_esx_writes_them() {
        for (text, vlan) in [
            ("0", Vlan::Access(0)),
            ("20", Vlan::Access(20)),
            ("4095", Vlan::all()),
            ("0-4094", Vlan::all()),
            ("10-20,30", trunk(&[(10, 20), (30, 30)])),
            ("30, 10-20, 15-25, 26", trunk(&[(10, 26), (30, 30)])),
            ("20-20", trunk(&[(20, 20)])),
        ] {
            assert_eq!(text.parse(), Ok(vlan), "{text}");
        }
        for bad in ["", "4096", "-1", "10-", "20-10", "10-4095", "1,,2", "ten", "1-2-3", "65536"] {
            assert!(bad.parse::<Vlan>().is_err(), "{bad}");
        }
    }

    #[test]
    fn json_takes_numbers_and_text_and_says_what_else_there_is() {
        let read = serde_json::from_str::<Vlan>;
        assert_eq!(read("20").unwrap(), Vlan::Access(20));
        assert_eq!(read("\"20\"").unwrap(), Vlan::Access(20));
        assert_eq!(read("\"1-2\"").unwrap(), trunk(&[(1, 2)]));
        for bad in ["4096", "-1", "\"x\"", "[1]", "1.5"] {
            let error = read(bad).unwrap_err().to_string();
            assert!(error.contains("10-20,30"), "{error}");
        }
    }

    fn vlans() -> impl Strategy<Value = Vlan> {
        let range = (0..=Vlan::MAX, 0..=Vlan::MAX).prop_map(|(a, b)| (a.min(b), a.max(b)));
        let ranges = prop::collection::vec(range, 1..6);
        prop_oneof![
            (0..=Vlan::MAX).prop_map(Vlan::Access),
            ranges.prop_map(|ranges| Vlan::Trunk(VlanRanges::new(ranges).unwrap())),
            Just(Vlan::all()),
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(vlan in vlans()) {
            prop_assert_eq!(vlan.to_string().parse::<Vlan>(), Ok(vlan.clone()));
            let json = serde_json::to_string(&vlan).unwrap();
            prop_assert_eq!(serde_json::from_str::<Vlan>(&json).unwrap(), vlan);
        }

        #[test]
        fn two_overlap_when_one_vlan_is_in_both(a in vlans(), b in vlans()) {
            let shared = (0..=Vlan::MAX).any(|vlan| a.admits(vlan) && b.admits(vlan));
            prop_assert_eq!(a.overlaps(&b), shared);
        }
    }
}
