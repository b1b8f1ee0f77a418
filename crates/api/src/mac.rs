//! Ethernet addresses.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_with::{DeserializeFromStr, SerializeDisplay};

use utoipa::ToSchema;

/// A 48-bit Ethernet address, written `02:11:00:00:00:01`.
#[derive(
    Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, SerializeDisplay, DeserializeFromStr, ToSchema,
)]
#[schema(value_type = String, example = "02:11:00:00:00:01")]
pub struct MacAddr(pub [u8; 6]);

/// Address that the driver of a port's guest has set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GuestMac {
    /// Address that the guest's driver has set; absent if it is not known. Only QEMU's virtio cards
    /// tell it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective_mac: Option<MacAddr>,
    /// True if the port receives no frames: the guest has changed its address, which the port group
    /// rejects.
    #[serde(default)]
    pub mac_rejected: bool,
    /// True if the port keeps its configured address although the port group accepts changes:
    /// another port has the address that the guest's driver has set, or no card can have it.
    #[serde(default)]
    pub mac_taken: bool,
}

/// Why a string is not a [`MacAddr`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an Ethernet address: write six hexadecimal pairs such as 02:11:00:00:00:01")]
pub struct BadMac(pub String);

impl MacAddr {
    /// The address that reaches every port of a segment.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// Group bit: broadcast or multicast.
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 == 1
    }

    /// Returns whether a vNIC can have this address: it must be unicast and not zero.
    pub fn is_assignable(self) -> bool {
        !self.is_multicast() && self.0 != [0; 6]
    }

    /// Derives the stable, locally administered address of the `index`-th vNIC of `owner`.
    ///
    /// The first three octets are always `02:74:61` ("ta" of taut after the local bit).
    pub fn derived(owner: &str, index: usize) -> Self {
        // FNV-1a is stable across builds; validation finds collisions.
        let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
        for byte in owner.bytes().chain([0xff]).chain((index as u64).to_le_bytes()) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        let [a, b, c, ..] = (hash ^ (hash >> 24)).to_le_bytes();
        Self([0x02, 0x74, 0x61, a, b, c])
    }
}

impl FromStr for MacAddr {
    type Err = BadMac;

    fn from_str(text: &str) -> Result<Self, BadMac> {
        let bad = || BadMac(text.to_owned());
        let mut octets = [0; 6];
        let mut parts = text.split([':', '-']);
        for octet in &mut octets {
            let part = parts.next().filter(|p| p.len() == 2).ok_or_else(bad)?;
            *octet = u8::from_str_radix(part, 16).map_err(|_| bad())?;
        }
        if parts.next().is_some() { Err(bad()) } else { Ok(Self(octets)) }
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, octet) in self.0.into_iter().enumerate() {
            write!(f, "{}{octet:02x}", if index == 0 { "" } else { ":" })?;
        }
        Ok(())
    }
}

impl fmt::Debug for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips() {
        let mac: MacAddr = "02:11:00:00:00:0A".parse().unwrap();
        assert_eq!(mac.to_string(), "02:11:00:00:00:0a");
        for bad in ["", "02:11:00:00:00", "02:11:00:00:00:0a:01", "2:11:0:0:0:a", "zz:11:00:00:00:00"] {
            assert!(bad.parse::<MacAddr>().is_err(), "{bad}");
        }
    }

    #[test]
    fn derived_addresses_are_stable_and_assignable() {
        assert_eq!(MacAddr::derived("db1", 0), MacAddr::derived("db1", 0));
        assert_ne!(MacAddr::derived("db1", 0), MacAddr::derived("db1", 1));
        assert!(MacAddr::derived("db1", 0).is_assignable());
    }
}
