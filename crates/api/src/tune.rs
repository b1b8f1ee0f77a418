//! Dense mode; ESX calls it *dynamic host-wide performance tuning*: settings and state.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Name;
use crate::word::counted;

/// `Net.NetTuneHostMode`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum TuneMode {
    /// Never dense.
    #[default]
    Default,
    /// Dense while the load is above all thresholds.
    Dense,
}

/// Valid values of `Net.NetTuneInterval`, in seconds.
pub const TUNE_INTERVALS: RangeInclusive<u32> = 1..=3600;

/// A threshold: a number, or a multiple of the pCPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Amount {
    /// A number.
    Plain(u32),
    /// A multiple of the number of pCPUs (`2n`).
    PerCpu(u32),
}

impl Amount {
    /// Returns the number on a host with `pcpus` pCPUs.
    pub fn resolve(self, pcpus: u32) -> u32 {
        match self {
            Self::Plain(amount) => amount,
            Self::PerCpu(times) => times.saturating_mul(pcpus),
        }
    }

    fn parse(text: &str, of: &'static str) -> Result<Self, BadTune> {
        let bad = || BadTune::Amount(of, text.to_owned());
        let (digits, per_cpu) = text.strip_suffix('n').map_or((text, false), |digits| (digits, true));
        // Refuse signs, which `parse` accepts.
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

/// `Net.NetTuneThreshold`: three thresholds that the load must all reach, written `1n 2n 50`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TuneThreshold {
    /// Running VMs.
    pub vms: Amount,
    /// Their vCPUs.
    pub vcpus: Amount,
    /// Percent of all pCPUs' time, 0 to 100.
    pub utilisation: u32,
}

/// As many VMs as pCPUs, twice as many vCPUs, and half of the pCPUs' time.
impl Default for TuneThreshold {
    fn default() -> Self {
        Self { vms: Amount::PerCpu(1), vcpus: Amount::PerCpu(2), utilisation: 50 }
    }
}

impl TuneThreshold {
    /// Returns the thresholds as numbers on a host with `pcpus` pCPUs.
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

/// Reads the seconds of `Net.NetTuneInterval`.
///
/// # Errors
/// If the text is not a number in [`TUNE_INTERVALS`].
pub fn tune_interval(text: &str) -> Result<u32, BadTune> {
    let seconds = text.parse().ok().filter(|seconds| TUNE_INTERVALS.contains(seconds));
    seconds.ok_or_else(|| BadTune::Interval(text.to_owned()))
}

/// Why a text is not a setting of dense mode.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadTune {
    /// The interval is outside its range.
    #[error("Net.NetTuneInterval takes 1 to 3600 seconds, not `{0}`")]
    Interval(String),
    /// The text does not contain three thresholds.
    #[error("Net.NetTuneThreshold takes three values, VMs, vCPUs and percent, not `{0}`")]
    Words(String),
    /// A threshold is not a number.
    #[error("Net.NetTuneThreshold takes a number of {0}, or a multiple of the pCPUs like 2n, not `{1}`")]
    Amount(&'static str, String),
    /// The utilisation is not a percentage.
    #[error("Net.NetTuneThreshold takes a utilisation of 0 to 100 percent, not `{0}`")]
    Percent(String),
}

/// Thresholds as numbers.
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
    /// Percent of all pCPUs' time spent running, rounded down; absent if the host's counters were
    /// unavailable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilisation: Option<u32>,
    /// VMs excluded from the utilisation, because they occupy their pCPUs even when idle
    /// (`cpu-pm`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub excluded: Vec<Name>,
}

/// One test of the load against the thresholds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TuneTest {
    /// Wall clock, milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// Load at the test.
    pub reading: TuneReading,
    /// Thresholds at the test.
    pub limits: TuneLimits,
}

impl TuneTest {
    /// Returns which thresholds are reached: VMs, vCPUs, utilisation. An unknown utilisation is
    /// not.
    pub fn held(&self) -> [bool; 3] {
        let (reading, limits) = (&self.reading, &self.limits);
        [
            reading.vms >= limits.vms,
            reading.vcpus >= limits.vcpus,
            reading.utilisation.is_some_and(|percent| percent >= limits.utilisation),
        ]
    }

    /// Returns whether all thresholds are reached.
    pub fn dense(&self) -> bool {
        self.held() == [true; 3]
    }
}

/// Formats the readings and thresholds for events.
impl fmt::Display for TuneTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { reading, limits, .. } = self;
        let sign = |held| if held { '≥' } else { '<' };
        let [vms, vcpus, utilisation] = self.held().map(sign);
        write!(
            f,
            "{} {vms} {}, {} {vcpus} {}, ",
            counted(reading.vms, "VM"),
            limits.vms,
            counted(reading.vcpus, "vCPU"),
            limits.vcpus
        )?;
        match reading.utilisation {
            Some(percent) => write!(f, "{percent} % {utilisation} {} %", limits.utilisation)?,
            None => write!(f, "utilisation not known (threshold {} %)", limits.utilisation)?,
        }
        write!(f, " of {}", counted(reading.pcpus, "pCPU"))?;
        if !reading.excluded.is_empty() {
            let names: Vec<_> = reading.excluded.iter().map(Name::as_str).collect();
            write!(f, ", without {} (cpu-pm: always looks busy)", names.join(", "))?;
        }
        Ok(())
    }
}

/// State of dense mode.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TuneState {
    /// True if dense mode is in force.
    pub on: bool,
    /// The last test.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test: Option<TuneTest>,
    /// Time of the last switch, in milliseconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_ms: Option<u64>,
}

/// `GET /v1/host/tune`: settings, readings and state of dense mode.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HostTune {
    /// `Net.NetTuneHostMode`.
    pub mode: TuneMode,
    /// `Net.NetTuneInterval`, in seconds.
    pub interval_s: u32,
    /// `Net.NetTuneThreshold` as written.
    pub threshold: String,
    /// On-line pCPUs now.
    pub pcpus: u32,
    /// Thresholds as numbers for this many pCPUs.
    pub limits: TuneLimits,
    /// State, and the last test.
    pub state: TuneState,
    /// Time of the next test, which can turn dense mode on or off, in milliseconds since the Unix
    /// epoch; absent while there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_test_ms: Option<u64>,
    /// Thresholds that the last test reached: VMs, vCPUs, utilisation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<[bool; 3]>,
    /// Ports that dense mode governs, by owner.
    pub governs: Vec<String>,
    /// Guests' ports that dense mode never governs, by owner.
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
    fn invalid_thresholds_are_refused_with_their_text() {
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
    fn a_test_formats_readings_and_thresholds() {
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
