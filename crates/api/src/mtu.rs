//! MTU of a vSwitch.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Bytes of the longest packet on a vSwitch, without the Ethernet header and a VLAN tag: 1280 to
/// 9190, default 1500. The range is that of ESX.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(try_from = "u32", into = "u32")]
#[schema(value_type = u32, minimum = 1280, maximum = 9190)]
pub struct Mtu(u16);

impl Mtu {
    /// Valid values in bytes.
    pub const RANGE: RangeInclusive<u16> = 1280..=9190;

    /// Returns the bytes.
    pub const fn get(self) -> u16 {
        self.0
    }

    /// Returns whether it is the default, 1500 bytes.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Default for Mtu {
    fn default() -> Self {
        Self(1500)
    }
}

/// Error for a number or a text that is not an [`Mtu`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an MTU from 1280 to 9190 bytes")]
pub struct BadMtu(String);

impl TryFrom<u32> for Mtu {
    type Error = BadMtu;

    fn try_from(bytes: u32) -> Result<Self, BadMtu> {
        let valid = u16::try_from(bytes).ok().filter(|bytes| Self::RANGE.contains(bytes));
        valid.map(Self).ok_or_else(|| BadMtu(bytes.to_string()))
    }
}

impl From<Mtu> for u32 {
    fn from(mtu: Mtu) -> Self {
        mtu.0.into()
    }
}

impl FromStr for Mtu {
    type Err = BadMtu;

    fn from_str(text: &str) -> Result<Self, BadMtu> {
        let bytes: u32 = text.parse().map_err(|_| BadMtu(text.to_owned()))?;
        bytes.try_into()
    }
}

impl fmt::Display for Mtu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_range_of_esx_is_accepted() {
        for (text, valid) in [
            ("1279", false),
            ("1280", true),
            ("1500", true),
            ("9190", true),
            ("9191", false),
            ("66816", false),
            ("4294967296", false),
            ("-1", false),
            ("jumbo", false),
            ("", false),
        ] {
            let parsed = text.parse::<Mtu>();
            assert_eq!(parsed.is_ok(), valid, "{text}");
            if !text.is_empty() && text != "jumbo" {
                assert_eq!(serde_json::from_str(text).ok(), parsed.ok(), "{text}");
            }
        }
        assert_eq!(
            "9191".parse::<Mtu>().unwrap_err().to_string(),
            "`9191` is not an MTU from 1280 to 9190 bytes"
        );
        assert_eq!(serde_json::to_string(&Mtu::default()).unwrap(), "1500");
    }
}
