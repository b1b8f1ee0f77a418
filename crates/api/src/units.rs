//! Quantities with units.

use std::fmt;
use std::str::FromStr;

use serde_with::SerializeDisplay;

use utoipa::ToSchema;

use crate::text::deserialize_number_or_text;

/// A size in bytes, written `512MiB`, `2GiB` or as a plain number of bytes.
///
/// Suffixes are binary in every spelling: `M`, `MB` and `MiB` are 1048576 bytes. The same holds for
/// K, G and T.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, SerializeDisplay, ToSchema)]
#[schema(value_type = String, example = "512MiB")]
pub struct Bytes(pub u64);

/// Why a string is not a size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a size: write a number of bytes, or a number with KiB, MiB, GiB or TiB")]
pub struct BadBytes(pub String);

impl Bytes {
    /// `n` mebibytes.
    pub const fn mib(n: u64) -> Self {
        Self(n << 20)
    }

    /// Returns whole mebibytes, rounded down.
    pub const fn as_mib(self) -> u64 {
        self.0 >> 20
    }
}

impl FromStr for Bytes {
    type Err = BadBytes;

    fn from_str(text: &str) -> Result<Self, BadBytes> {
        let bad = || BadBytes(text.to_owned());
        let trimmed = text.trim();
        let digits = trimmed.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = trimmed.split_at(digits);
        let shift = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 0,
            "k" | "kb" | "kib" => 10,
            "m" | "mb" | "mib" => 20,
            "g" | "gb" | "gib" => 30,
            "t" | "tb" | "tib" => 40,
            _ => return Err(bad()),
        };
        let number: u64 = number.parse().map_err(|_| bad())?;
        number.checked_mul(1 << shift).map(Self).ok_or_else(bad)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (shift, unit) in [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")] {
            if self.0 != 0 && self.0.trailing_zeros() >= shift {
                return f.pad(&format!("{}{unit}", self.0 >> shift));
            }
        }
        f.pad(&self.0.to_string())
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A rate in bits per second, written `10Mbit`, `64 Kbps`, `2Gbit/s` or as a plain number of bits
/// per second.
///
/// Prefixes are decimal, as usual in networking and in ESX's dialogs: `k` is 1000. (ESX 2's
/// `nfshaper` took `k` as 1024; a configuration from there is about 2 % higher per prefix.)
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, SerializeDisplay, ToSchema)]
#[schema(value_type = String, example = "10Mbit")]
pub struct BitRate(pub u64);

/// Why a string is not a rate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a rate: write a number of bits per second, or a number with kbit, Mbit or Gbit (or Kbps, Mbps, Gbps)"
)]
pub struct BadBitRate(pub String);

impl FromStr for BitRate {
    type Err = BadBitRate;

    fn from_str(text: &str) -> Result<Self, BadBitRate> {
        let bad = || BadBitRate(text.to_owned());
        let trimmed = text.trim();
        let digits = trimmed.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = trimmed.split_at(digits);
        let unit = unit.trim().to_ascii_lowercase();
        let prefix = ["bit/s", "bps", "bit"].iter().find_map(|name| unit.strip_suffix(name)).unwrap_or(&unit);
        let factor = match prefix {
            "" => 1,
            "k" => 1000,
            "m" => 1_000_000,
            "g" => 1_000_000_000,
            _ => return Err(bad()),
        };
        let number: u64 = number.parse().map_err(|_| bad())?;
        number.checked_mul(factor).map(Self).ok_or_else(bad)
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (factor, unit) in [(1_000_000_000, "Gbit"), (1_000_000, "Mbit"), (1000, "kbit")] {
            if self.0 != 0 && self.0.is_multiple_of(factor) {
                return f.pad(&format!("{}{unit}", self.0 / factor));
            }
        }
        f.pad(&format!("{}bit", self.0))
    }
}

impl fmt::Debug for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

deserialize_number_or_text!(Bytes, BitRate);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_written_with_units() {
        assert_eq!("512MiB".parse(), Ok(Bytes::mib(512)));
        assert_eq!("512 M".parse(), Ok(Bytes::mib(512)));
        assert_eq!("4096".parse(), Ok(Bytes(4096)));
        assert_eq!(Bytes::mib(2048).to_string(), "2GiB");
        assert_eq!(Bytes(4097).to_string(), "4097");
        for bad in ["", "MiB", "1.5GiB", "-1", "3 parsecs", "99999999999999999999", "18446744073709551615K"] {
            assert!(bad.parse::<Bytes>().is_err(), "{bad}");
        }
    }

    #[test]
    fn rates_are_read_and_written_with_units() {
        for (text, rate) in [
            ("64000", 64_000),
            ("64kbit", 64_000),
            ("64 Kbps", 64_000),
            ("10Mbit/s", 10_000_000),
            ("10 M", 10_000_000),
            ("2Gbps", 2_000_000_000),
            ("5bps", 5),
        ] {
            assert_eq!(text.parse(), Ok(BitRate(rate)), "{text}");
        }
        for (rate, text) in [(64_000, "64kbit"), (1_500_000_000, "1500Mbit"), (1001, "1001bit"), (0, "0bit")]
        {
            assert_eq!(BitRate(rate).to_string(), text);
            assert_eq!(text.parse(), Ok(BitRate(rate)));
        }
        for bad in
            ["", "Mbit", "1.5Gbit", "-1", "10MB", "10MiB/s", "99999999999999999999", "18446744073709551615k"]
        {
            assert!(bad.parse::<BitRate>().is_err(), "{bad}");
        }
    }
}
