//! Judgement of `taut check`: lines about one host, VM or guest.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The purpose of a host or VM.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// Microseconds count; CPU time and power do not.
    #[default]
    Latency,
    /// Bytes and transactions per second count.
    Throughput,
    /// The number of VMs on the host counts.
    Dense,
}

/// The judgement of what was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As wanted, or without consequence here.
    Ok,
    /// Not as wanted, with a small cost, or with a remedy that is too expensive for some.
    Warn,
    /// Not as wanted.
    Bad,
    /// Not visible from here.
    Unknown,
}

/// When a change takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TakesEffect {
    /// At once.
    Live,
    /// With the VM's next start.
    VmRestart,
    /// With the host's next boot.
    HostBoot,
    /// With the host's next boot, after a change in its firmware's setup.
    Bios,
    /// With the guest's next boot.
    GuestBoot,
}

/// `GET /v1/host/check`: the lines about one host, VM or guest, as `taut check host -o json` prints
/// them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CheckReport {
    /// The subject: `host`, `guest`, or a VM's name.
    pub subject: String,
    /// The profile for which it was checked.
    pub profile: Profile,
    /// The reason for the profile, if its user has not named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile_because: Option<String>,
    /// Number of lines with each verdict.
    pub summary: Summary,
    /// The lines.
    pub lines: Vec<CheckLine>,
}

/// A line of a [`CheckReport`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CheckLine {
    /// Topic and item, such as `idle.c1e`.
    pub id: String,
    /// The subject that is checked.
    pub what: String,
    /// The value that was found.
    pub found: String,
    /// The value that is wanted for the profile.
    pub wanted: String,
    /// Why that value is wanted.
    pub why: String,
    /// The effect of a change, and its cost.
    pub effect: String,
    /// When a change takes effect.
    pub takes_effect: TakesEffect,
    /// The judgement.
    pub verdict: Verdict,
    /// Files and network cards that `--apply` changes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<String>,
}

impl CheckLine {
    /// Returns the place of the guide's section about the line.
    pub fn guide(&self) -> String {
        crate::guide::section("check", &self.id)
    }
}

/// Number of lines with each verdict.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Summary {
    /// Lines with `ok`.
    pub ok: usize,
    /// Lines with `warn`.
    pub warn: usize,
    /// Lines with `bad`.
    pub bad: usize,
    /// Lines with `unknown`.
    pub unknown: usize,
}

impl Profile {
    /// All profiles.
    pub const ALL: [Self; 3] = [Self::Latency, Self::Throughput, Self::Dense];

    /// Returns the word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Throughput => "throughput",
            Self::Dense => "dense",
        }
    }
}

impl Verdict {
    /// The verdict as users see it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Bad => "bad",
            Self::Unknown => "unknown",
        }
    }
}

impl TakesEffect {
    /// The time as users see it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::VmRestart => "vm-restart",
            Self::HostBoot => "host-boot",
            Self::Bios => "bios",
            Self::GuestBoot => "guest-boot",
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Profile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|profile| profile.to_string() == text)
            .ok_or_else(|| format!("`{text}` is not a profile; use latency, throughput or dense"))
    }
}
