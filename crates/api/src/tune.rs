//! Dense mode, in ESX's words *dynamic host-wide performance tuning*: its settings, and what became of them (SPEC rows DM-1 to
//! DM-6).

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Name;

/// `Net.NetTuneHostMode` (DM-1).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum TuneMode {
    /// Never dense.
    #[default]
    Default,
    /// Dense while the load is above all thresholds.
    Dense,
}

/// Seconds that `Net.NetTuneInterval` takes.
pub const TUNE_INTERVALS: RangeInclusive<u32> = 1..=3600;

/// A threshold that is a number, or a multiple of the pCPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Amount {
    /// So many.
    Plain(u32),
    /// So many for each pCPU (`2n`).
    PerCpu(u32),
}

impl Amount {
    /// What it is on a host with so many pCPUs.
    pub fn resolve(self, pcpus: u32) -> u32 {
        match self {
            Self::Plain(amount) => amount,
            Self::PerCpu(times) => times.saturating_mul(pcpus),
        }
    }

    fn parse(text: &str, of: &'static str) -> Result<Self, BadTune> {
        let bad = || BadTune::Amount(of, text.to_owned());
        let (digits, per_cpu) = text.strip_suffix('n').map_or((text, false), |digits| (digits, true));
        // A sign is no digit.
        if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(bad());
        }
        let amount = digits.parse().map_err(|_| bad())?;
        Ok(if per_cpu { Self::PerCpu(amount) } else { Self::Plain(amount) })
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(amount) => amount.fmt(f),
            Self::PerCpu(times) => write!(f, "{times}n"),
        }
    }
}

/// `Net.NetTuneThreshold` (DM-2): what the load has to reach, all three. Written `1n 2n 50`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TuneThreshold {
    /// Running VMs.
    pub vms: Amount,
    /// Their vCPUs.
    pub vcpus: Amount,
    /// Percent of all pCPUs' time, 0 to 100.
    pub utilisation: u32,
}

/// As many VMs as pCPUs, twice as many vCPUs, half of their time.
impl Default for TuneThreshold {
    fn default() -> Self {
        Self { vms: Amount::PerCpu(1), vcpus: Amount::PerCpu(2), utilisation: 50 }
    }
}

impl TuneThreshold {
    /// In numbers, on a host with so many pCPUs.
    pub fn resolve(self, pcpus: u32) -> TuneLimits {
        TuneLimits {
            vms: self.vms.resolve(pcpus),
            vcpus: self.vcpus.resolve(pcpus),
            utilisation: self.utilisation,
        }
    }
}

impl FromStr for TuneThreshold {
    type Err = BadTune;

    fn from_str(text: &str) -> Result<Self, BadTune> {
        let words: Vec<_> = text.split_whitespace().collect();
        let [vms, vcpus, utilisation] = words[..] else { return Err(BadTune::Words(text.to_owned())) };
        match Amount::parse(utilisation, "percent") {
            Ok(Amount::Plain(percent @ 0..=100)) => Ok(Self {
                vms: Amount::parse(vms, "VMs")?,
                vcpus: Amount::parse(vcpus, "vCPUs")?,
                utilisation: percent,
            }),
            _ => Err(BadTune::Percent(utilisation.to_owned())),
        }
    }
}

impl fmt::Display for TuneThreshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.vms, self.vcpus, self.utilisation)
    }
}

/// Seconds of `Net.NetTuneInterval`.
///
/// # Errors
/// When the text is not a number of [`TUNE_INTERVALS`].
pub fn tune_interval(text: &str) -> Result<u32, BadTune> {
    let seconds = text.parse().ok().filter(|seconds| TUNE_INTERVALS.contains(seconds));
    seconds.ok_or_else(|| BadTune::Interval(text.to_owned()))
}

/// Why a text is no setting of dense mode.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadTune {
    /// The interval is outside its range.
    #[error("Net.NetTuneInterval takes 1 to 3600 seconds, not `{0}`")]
    Interval(String),
    /// There are not three thresholds.
    #[error("Net.NetTuneThreshold takes three values, VMs, vCPUs and percent, not `{0}`")]
    Words(String),
    /// A threshold is no number.
    #[error("Net.NetTuneThreshold takes a number of {0}, or a multiple of the pCPUs like 2n, not `{1}`")]
    Amount(&'static str, String),
    /// The utilisation is no percentage.
    #[error("Net.NetTuneThreshold takes a utilisation of 0 to 100 percent, not `{0}`")]
    Percent(String),
}

/// [`TuneThreshold`] in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TuneLimits {
    /// Running VMs.
    pub vms: u32,
    /// Their vCPUs.
    pub vcpus: u32,
    /// Percent of all pCPUs' time.
    pub utilisation: u32,
}

/// The load of the host over one interval.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TuneReading {
    /// On-line pCPUs at its end.
    pub pcpus: u32,
    /// VMs that run.
    pub vms: u32,
    /// vCPUs of the VMs that run.
    pub vcpus: u32,
    /// What ran, in percent of all pCPUs' time, rounded down; absent when the host's counters did not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilisation: Option<u32>,
    /// VMs whose time is not in it: they hold their pCPUs even when idle (`cpu-pm`), and always look busy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub excluded: Vec<Name>,
}

/// One test of the load against the thresholds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TuneTest {
    /// Wall clock, milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// What was read.
    pub reading: TuneReading,
    /// What it was held against.
    pub limits: TuneLimits,
}

impl TuneTest {
    /// Which of the three hold: VMs, vCPUs, utilisation. An unknown utilisation does not.
    pub fn held(&self) -> [bool; 3] {
        let (reading, limits) = (&self.reading, &self.limits);
        [
            reading.vms >= limits.vms,
            reading.vcpus >= limits.vcpus,
            reading.utilisation.is_some_and(|percent| percent >= limits.utilisation),
        ]
    }

    /// Do all three hold?
    pub fn dense(&self) -> bool {
        self.held() == [true; 3]
    }
}

/// The readings beside the thresholds, for events.
impl fmt::Display for TuneTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { reading, limits, .. } = self;
        let sign = |held| if held { '≥' } else { '<' };
        let [vms, vcpus, utilisation] = self.held().map(sign);
        write!(
            f,
            "{} VMs {vms} {}, {} vCPUs {vcpus} {}, ",
            reading.vms, limits.vms, reading.vcpus, limits.vcpus
        )?;
        match reading.utilisation {
            Some(percent) => write!(f, "{percent} % {utilisation} {} %", limits.utilisation)?,
            None => write!(f, "utilisation not known (threshold {} %)", limits.utilisation)?,
        }
        write!(f, " of {} pCPUs", reading.pcpus)?;
        if !reading.excluded.is_empty() {
            let names: Vec<_> = reading.excluded.iter().map(Name::as_str).collect();
            write!(f, ", without {} (cpu-pm: always looks busy)", names.join(", "))?;
        }
        Ok(())
    }
}

/// Where dense mode stands.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TuneState {
    /// Is it in force?
    pub on: bool,
    /// The last test.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test: Option<TuneTest>,
    /// When it was last switched on or off: wall clock, milliseconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_ms: Option<u64>,
}

/// `GET /v1/host/tune`: dense mode's settings, readings and state (DM-6).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HostTune {
    /// `Net.NetTuneHostMode`.
    pub mode: TuneMode,
    /// `Net.NetTuneInterval`, in seconds.
    pub interval_s: u32,
    /// `Net.NetTuneThreshold` as it was written.
    pub threshold: String,
    /// On-line pCPUs now.
    pub pcpus: u32,
    /// The thresholds in numbers, with as many pCPUs.
    pub limits: TuneLimits,
    /// Whether it is in force, and the last test.
    pub state: TuneState,
    /// Which of the last test's three hold: VMs, vCPUs, utilisation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<[bool; 3]>,
    /// Ports that it governs while it is in force, by owner.
    pub governs: Vec<String>,
    /// Guests' ports that it never touches, by owner.
    pub leaves_alone: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_read_as_they_are_written() {
        for text in ["1n 2n 50", "0 0n 0", "8 16 100", "3n 7 1"] {
            assert_eq!(text.parse::<TuneThreshold>().unwrap().to_string(), text);
        }
        assert_eq!(" 1n\t2n  50 ".parse(), Ok(TuneThreshold::default()));
        let limits = TuneThreshold::default().resolve(40);
        assert_eq!(limits, TuneLimits { vms: 40, vcpus: 80, utilisation: 50 });
        let huge: TuneThreshold = "4294967295n 3 5".parse().unwrap();
        assert_eq!(huge.resolve(2), TuneLimits { vms: u32::MAX, vcpus: 3, utilisation: 5 });
    }

    #[test]
    fn what_is_no_threshold_is_named() {
        for (text, message) in [
            ("", "takes three values, VMs, vCPUs and percent, not ``"),
            ("1n 2n", "takes three values, VMs, vCPUs and percent, not `1n 2n`"),
            ("1n 2n 50 4", "not `1n 2n 50 4`"),
            ("n 2n 50", "a number of VMs, or a multiple of the pCPUs like 2n, not `n`"),
            ("+1 2n 50", "a number of VMs, or a multiple of the pCPUs like 2n, not `+1`"),
            ("1n 1.5n 50", "a number of vCPUs, or a multiple of the pCPUs like 2n, not `1.5n`"),
            ("1n 4294967296 50", "a number of vCPUs, or a multiple of the pCPUs like 2n, not `4294967296`"),
            ("1n 2n 101", "0 to 100 percent, not `101`"),
            ("1n 2n 1n", "0 to 100 percent, not `1n`"),
            ("1n 2n 50%", "0 to 100 percent, not `50%`"),
        ] {
            let error = text.parse::<TuneThreshold>().unwrap_err().to_string();
            assert!(error.starts_with("Net.NetTuneThreshold takes"), "{error}");
            assert!(error.ends_with(message), "{error}");
        }
    }

    #[test]
    fn intervals_have_a_range() {
        assert_eq!((tune_interval("1"), tune_interval("3600")), (Ok(1), Ok(3600)));
        for text in ["0", "3601", "", "-5", "1.5", "60s"] {
            let error = tune_interval(text).unwrap_err().to_string();
            assert_eq!(error, format!("Net.NetTuneInterval takes 1 to 3600 seconds, not `{text}`"));
        }
    }

    #[test]
    fn a_test_says_what_was_read_and_what_held() {
        let reading = TuneReading {
            pcpus: 2,
            vms: 8,
            vcpus: 3,
            utilisation: Some(49),
            excluded: vec!["db1".parse().unwrap()],
        };
        let mut test = TuneTest { at_ms: 0, reading, limits: TuneThreshold::default().resolve(2) };
        assert_eq!(test.held(), [true, false, false]);
        let text = "8 VMs ≥ 2, 3 vCPUs < 4, 49 % < 50 % of 2 pCPUs, without db1 (cpu-pm: always looks busy)";
        assert_eq!(test.to_string(), text);
        test.reading = TuneReading { vcpus: 4, utilisation: Some(50), excluded: Vec::new(), ..test.reading };
        assert!(test.dense());
        test.reading.utilisation = None;
        assert_eq!(test.held(), [true, true, false]);
        assert!(test.to_string().ends_with("utilisation not known (threshold 50 %) of 2 pCPUs"), "{test}");
    }
}
