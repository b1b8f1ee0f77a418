//! Shares and limits of CPU and memory, under ESX's names.
//!
//! *Shares* divide a scarce resource between running VMs; without scarcity they have no effect. A
//! *limit* is an upper bound, however much is idle.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_with::{DeserializeFromStr, SerializeDisplay};
use utoipa::ToSchema;

use crate::Bytes;
use crate::latency::Decision;
use crate::text::{deserialize_number_or_text, schema_of_text};
use crate::word::removes;

/// Weight of a VM when a resource is scarce: `low`, `normal`, `high` (1 : 2 : 4, per vCPU, per MiB
/// of memory or per disk), or a number from 1 to 1000000 for the whole VM, as on ESX
/// (`sched.cpu.shares`, `sched.mem.shares`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, SerializeDisplay)]
pub enum Shares {
    /// 500 per vCPU, 5 per MiB, 500 per disk.
    Low,
    /// 1000 per vCPU, 10 per MiB, 1000 per disk.
    #[default]
    Normal,
    /// 2000 per vCPU, 20 per MiB, 2000 per disk.
    High,
    /// Shares of the whole VM.
    Custom(u32),
}

impl Shares {
    /// Largest number of shares.
    pub const MOST: u32 = 1_000_000;

    /// Returns the CPU shares of a VM with this many vCPUs.
    pub fn of_cpu(self, vcpus: u32) -> u64 {
        self.each(500).map_or_else(u64::from, |each| each * u64::from(vcpus))
    }

    /// Returns the memory shares of a VM with this much memory.
    pub fn of_memory(self, memory: Bytes) -> u64 {
        self.each(5).map_or_else(u64::from, |each| each * memory.as_mib())
    }

    /// Returns the shares of a disk.
    pub fn of_disk(self) -> u64 {
        self.each(500).unwrap_or_else(u64::from)
    }

    fn each(self, low: u64) -> Result<u64, u32> {
        match self {
            Self::Low => Ok(low),
            Self::Normal => Ok(2 * low),
            Self::High => Ok(4 * low),
            Self::Custom(number) => Err(number),
        }
    }

    /// Returns whether the shares are `normal`.
    pub fn is_default(&self) -> bool {
        *self == Self::Normal
    }
}

/// Why a text is not a number of shares.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a number of shares: write low, normal, high, or a number from 1 to 1000000")]
pub struct BadShares(pub String);

impl FromStr for Shares {
    type Err = BadShares;

    fn from_str(text: &str) -> Result<Self, BadShares> {
        let lower = text.trim().to_ascii_lowercase();
        match lower.as_str() {
            "low" => Ok(Self::Low),
            "normal" => Ok(Self::Normal),
            "high" => Ok(Self::High),
            number => {
                let number = number.parse().ok().filter(|number| (1..=Self::MOST).contains(number));
                number.map(Self::Custom).ok_or_else(|| BadShares(text.to_owned()))
            }
        }
    }
}

impl fmt::Display for Shares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Low => f.pad("low"),
            Self::Normal => f.pad("normal"),
            Self::High => f.pad("high"),
            Self::Custom(number) => f.pad(&number.to_string()),
        }
    }
}

/// Upper limit of a VM's CPU: `none`, a percentage of its vCPUs (`50%`), or MHz over all of them as
/// on ESX (`sched.cpu.max`, `2400MHz`). CPU time of QEMU's own threads counts as well.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, SerializeDisplay, DeserializeFromStr)]
pub enum CpuLimit {
    /// No limit.
    #[default]
    None,
    /// Percentage of a whole pCPU per vCPU, 1 to 100.
    Percent(u8),
    /// MHz over all vCPUs, at the pCPU's nominal frequency.
    Mhz(u32),
}

impl CpuLimit {
    /// Returns the limit in thousandths of a pCPU, for `vcpus` vCPUs on pCPUs of `mhz` MHz; at
    /// least one hundredth of a pCPU. `None` if it limits nothing.
    pub fn thousandths(self, vcpus: u32, mhz: u32) -> Option<u64> {
        let full = u64::from(vcpus) * 1000;
        let limit = match self {
            Self::None => return None,
            Self::Percent(percent) => full * u64::from(percent) / 100,
            Self::Mhz(most) => u64::from(most) * 1000 / u64::from(mhz.max(1)),
        };
        (limit < full).then_some(limit.max(10))
    }

    /// Returns whether there is no limit.
    pub fn is_none(&self) -> bool {
        *self == Self::None
    }
}

/// Why a text is not a CPU limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no CPU limit: write none, a percentage such as 50%, or MHz such as 2400MHz")]
pub struct BadCpuLimit(pub String);

impl FromStr for CpuLimit {
    type Err = BadCpuLimit;

    fn from_str(text: &str) -> Result<Self, BadCpuLimit> {
        let bad = || BadCpuLimit(text.to_owned());
        let lower = text.trim().to_ascii_lowercase();
        if removes(&lower) {
            return Ok(Self::None);
        }
        if let Some(percent) = lower.strip_suffix('%') {
            let percent = percent.trim().parse::<u8>().ok().filter(|percent| (1..=100).contains(percent));
            return percent.map(Self::Percent).ok_or_else(bad);
        }
        let mhz = lower.strip_suffix("mhz").and_then(|mhz| mhz.trim().parse::<u32>().ok());
        mhz.filter(|mhz| *mhz > 0).map(Self::Mhz).ok_or_else(bad)
    }
}

impl fmt::Display for CpuLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.pad("none"),
            Self::Percent(percent) => f.pad(&format!("{percent}%")),
            Self::Mhz(mhz) => f.pad(&format!("{mhz}MHz")),
        }
    }
}

/// Upper limit of the host memory that a VM gets: `none`, or a size, as on ESX (`sched.mem.max`).
/// The host swaps out guest memory above it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, SerializeDisplay, DeserializeFromStr)]
pub enum MemoryLimit {
    /// No limit.
    #[default]
    None,
    /// A size.
    Size(Bytes),
}

impl MemoryLimit {
    /// Returns the limit for a guest's memory; `None` if it limits nothing.
    pub fn of(self, memory: Bytes) -> Option<Bytes> {
        match self {
            Self::Size(size) if size < memory => Some(size),
            Self::None | Self::Size(_) => None,
        }
    }

    /// Returns whether there is no limit.
    pub fn is_none(&self) -> bool {
        *self == Self::None
    }
}

/// Why a text is not a memory limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no memory limit: write none, or a size such as 512MiB")]
pub struct BadMemoryLimit(pub String);

impl FromStr for MemoryLimit {
    type Err = BadMemoryLimit;

    fn from_str(text: &str) -> Result<Self, BadMemoryLimit> {
        if removes(text) {
            return Ok(Self::None);
        }
        let size = text.parse::<Bytes>().ok().filter(|size| size.0 > 0);
        size.map(Self::Size).ok_or_else(|| BadMemoryLimit(text.to_owned()))
    }
}

impl fmt::Display for MemoryLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.pad("none"),
            Self::Size(size) => fmt::Display::fmt(size, f),
        }
    }
}

/// State of a VM's shares, limits and placement.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ResourceStatus {
    /// Settings that this host cannot enforce, with reasons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// Decisions, each with its rule.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub decisions: Vec<Decision>,
}

schema_of_text!(Shares, CpuLimit, MemoryLimit);
deserialize_number_or_text!(Shares);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_by_size_unless_they_are_a_number() {
        assert_eq!([Shares::Low, Shares::Normal, Shares::High].map(|it| it.of_cpu(2)), [1000, 2000, 4000]);
        assert_eq!(Shares::High.of_memory(Bytes::mib(256)), 5120);
        assert_eq!([Shares::Low, Shares::Normal, Shares::Custom(7)].map(Shares::of_disk), [500, 1000, 7]);
        assert_eq!("1500".parse(), Ok(Shares::Custom(1500)));
        assert_eq!(Shares::Custom(1500).of_cpu(8), 1500);
        for bad in ["", "0", "1000001", "-1", "medium"] {
            assert!(bad.parse::<Shares>().is_err(), "{bad}");
        }
        let read = |json: &str| serde_json::from_str::<Shares>(json);
        assert_eq!(read("7").unwrap(), read("\"7\"").unwrap());
        assert_eq!(serde_json::to_string(&Shares::Custom(7)).unwrap(), "\"7\"");
    }

    #[test]
    fn a_limit_that_limits_nothing_is_none() {
        assert_eq!("50%".parse::<CpuLimit>().unwrap().thousandths(4, 2400), Some(2000));
        assert_eq!(CpuLimit::Mhz(1200).thousandths(2, 2400), Some(500));
        assert_eq!(CpuLimit::Mhz(1).thousandths(2, 2400), Some(10), "it has to be able to run");
        for none in [CpuLimit::None, CpuLimit::Percent(100), CpuLimit::Mhz(4800)] {
            assert_eq!(none.thousandths(2, 2400), None);
        }
        let limit: MemoryLimit = "128MiB".parse().unwrap();
        assert_eq!((limit.of(Bytes::mib(256)), limit.of(Bytes::mib(128))), (Some(Bytes::mib(128)), None));
        for bad in ["", "0", "full", "101%", "0%", "0MHz"] {
            assert!(bad.parse::<CpuLimit>().is_err() && bad.parse::<MemoryLimit>().is_err(), "{bad}");
        }
        for text in ["none", "50%", "2400MHz"] {
            assert_eq!(text.parse::<CpuLimit>().unwrap().to_string(), text);
        }
    }
}
