//! Quantities with their units.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A size in bytes, written `512MiB`, `2GiB` or as a plain number of bytes.
///
/// Suffixes are binary: `K`/`KiB`, `M`/`MiB`, `G`/`GiB`, `T`/`TiB`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize, ToSchema)]
#[serde(try_from = "BytesText", into = "String")]
#[schema(value_type = String, example = "512MiB")]
pub struct Bytes(pub u64);

/// Both ways in which a document may write a size.
#[derive(Deserialize)]
#[serde(untagged)]
enum BytesText {
    Number(u64),
    Text(String),
}

/// Why a string is not a size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a size: write a number of bytes, or a number with KiB, MiB, GiB or TiB")]
pub struct BadBytes(pub String);

impl Bytes {
    /// `n` mebibytes.
    pub const fn mib(n: u64) -> Self {
        Self(n << 20)
    }

    /// Whole mebibytes, rounded down.
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

impl TryFrom<BytesText> for Bytes {
    type Error = BadBytes;

    fn try_from(text: BytesText) -> Result<Self, BadBytes> {
        match text {
            BytesText::Number(number) => Ok(Self(number)),
            BytesText::Text(text) => text.parse(),
        }
    }
}

impl From<Bytes> for String {
    fn from(bytes: Bytes) -> Self {
        bytes.to_string()
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
}
