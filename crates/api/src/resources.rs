//! Reservations of CPU and memory.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_with::{DeserializeFromStr, SerializeDisplay};
use utoipa::ToSchema;

use crate::Bytes;
use crate::shares::{CpuLimit, Shares};
use crate::text::schema_of_text;
use crate::word::removes;

/// The table `[cpu]` of a VM file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CpuResources {
    /// CPU reserved for the VM: `full`, a percentage of its vCPUs (`50%`), MHz as on ESX
    /// (`2400MHz`), or `none` (default). A full reservation is a whole pCPU per vCPU; exclusive
    /// pCPUs require it.
    pub reservation: CpuReservation,
    /// Upper limit of CPU: `none` (default), a percentage of the vCPUs, or MHz; not below the
    /// reservation.
    #[serde(skip_serializing_if = "CpuLimit::is_none")]
    pub limit: CpuLimit,
    /// Weight of the VM when CPU is scarce: `low`, `normal` (default), `high`, or a number.
    #[serde(skip_serializing_if = "Shares::is_default")]
    pub shares: Shares,
}

impl CpuResources {
    /// Returns whether all values are the defaults.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// CPU reserved for a VM.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, SerializeDisplay, DeserializeFromStr)]
pub enum CpuReservation {
    /// No CPU.
    #[default]
    None,
    /// A whole pCPU per vCPU.
    Full,
    /// Percentage of a whole pCPU per vCPU, 1 to 100.
    Percent(u8),
    /// MHz over all vCPUs, as ESX counts (`sched.cpu.min`), at the pCPU's nominal frequency.
    Mhz(u32),
}

/// Why a text is not a CPU reservation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a CPU reservation: write full, none, a percentage such as 50%, or MHz such as 2400MHz")]
pub struct BadCpuReservation(pub String);

impl CpuReservation {
    /// Returns the reservation in thousandths of a pCPU, for `vcpus` vCPUs on pCPUs of `mhz` MHz.
    /// MHz are rounded up. The maximum is one pCPU per vCPU.
    pub fn thousandths(self, vcpus: u32, mhz: u32) -> u64 {
        let full = u64::from(vcpus) * 1000;
        match self {
            Self::None => 0,
            Self::Full => full,
            Self::Percent(percent) => full * u64::from(percent) / 100,
            Self::Mhz(wanted) => (u64::from(wanted) * 1000).div_ceil(u64::from(mhz.max(1))).min(full),
        }
    }
}

impl FromStr for CpuReservation {
    type Err = BadCpuReservation;

    fn from_str(text: &str) -> Result<Self, BadCpuReservation> {
        let bad = || BadCpuReservation(text.to_owned());
        let lower = text.trim().to_ascii_lowercase();
        match lower.as_str() {
            word if removes(word) => return Ok(Self::None),
            "full" => return Ok(Self::Full),
            _ => {}
        }
        if let Some(percent) = lower.strip_suffix('%') {
            let percent = percent.trim().parse::<u8>().ok().filter(|percent| (1..=100).contains(percent));
            return percent.map(Self::Percent).ok_or_else(bad);
        }
        let mhz = lower.strip_suffix("mhz").and_then(|mhz| mhz.trim().parse::<u32>().ok());
        mhz.filter(|mhz| *mhz > 0).map(Self::Mhz).ok_or_else(bad)
    }
}

impl fmt::Display for CpuReservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.pad("none"),
            Self::Full => f.pad("full"),
            Self::Percent(percent) => f.pad(&format!("{percent}%")),
            Self::Mhz(mhz) => f.pad(&format!("{mhz}MHz")),
        }
    }
}

/// Memory reserved for a VM: `full`, `none` (default), or a size. With a full reservation, the VM's
/// memory is allocated and locked when it starts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, SerializeDisplay, DeserializeFromStr)]
pub enum MemoryReservation {
    /// No memory.
    #[default]
    None,
    /// All of the VM's memory.
    Full,
    /// A size.
    Size(Bytes),
}

/// Why a text is not a memory reservation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a memory reservation: write full, none, or a size such as 512MiB")]
pub struct BadMemoryReservation(pub String);

impl MemoryReservation {
    /// Returns the reserved size of a memory of this size.
    pub fn of(self, memory: Bytes) -> Bytes {
        match self {
            Self::None => Bytes(0),
            Self::Full => memory,
            Self::Size(size) => size.min(memory),
        }
    }

    /// Returns whether nothing is reserved.
    pub fn is_none(&self) -> bool {
        *self == Self::None
    }
}

impl FromStr for MemoryReservation {
    type Err = BadMemoryReservation;

    fn from_str(text: &str) -> Result<Self, BadMemoryReservation> {
        match text.trim().to_ascii_lowercase().as_str() {
            word if removes(word) => Ok(Self::None),
            "full" => Ok(Self::Full),
            size => size.parse().map(Self::Size).map_err(|_| BadMemoryReservation(text.to_owned())),
        }
    }
}

impl fmt::Display for MemoryReservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.pad("none"),
            Self::Full => f.pad("full"),
            Self::Size(size) => fmt::Display::fmt(size, f),
        }
    }
}

schema_of_text!(CpuReservation, MemoryReservation);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reservations_are_read_and_written() {
        for text in ["none", "full", "50%", "2400MHz"] {
            assert_eq!(text.parse::<CpuReservation>().unwrap().to_string(), text);
        }
        assert_eq!("2400 mhz".parse(), Ok(CpuReservation::Mhz(2400)));
        for bad in ["", "0%", "101%", "2.4GHz", "0MHz", "-5%", "2400"] {
            assert!(bad.parse::<CpuReservation>().is_err(), "{bad}");
        }
        for text in ["none", "full", "512MiB"] {
            assert_eq!(text.parse::<MemoryReservation>().unwrap().to_string(), text);
        }
        assert!("half".parse::<MemoryReservation>().is_err());
    }

    #[test]
    fn cpu_is_counted_in_thousandths_of_a_pcpu() {
        assert_eq!(CpuReservation::Full.thousandths(2, 2400), 2000);
        assert_eq!(CpuReservation::Percent(50).thousandths(4, 2400), 2000);
        assert_eq!(CpuReservation::Mhz(4800).thousandths(2, 2400), 2000);
        assert_eq!(CpuReservation::Mhz(4799).thousandths(2, 2400), 2000, "rounded up");
        assert_eq!(CpuReservation::Mhz(1200).thousandths(2, 2400), 500);
        assert_eq!(CpuReservation::Mhz(9999).thousandths(1, 2400), 1000, "never more than the vCPUs can use");
        assert_eq!(CpuReservation::None.thousandths(2, 2400), 0);
    }
}
