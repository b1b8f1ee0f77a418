//! A line of the checklist, and the report that collects all lines.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;
use taut_api::check::Change;

/// The purpose of a host or VM.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
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

/// A line of the checklist.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Line {
    /// Topic and item, such as `idle.c1e`.
    pub id: &'static str,
    /// The subject that is checked.
    pub what: &'static str,
    /// The value that was found.
    pub found: String,
    /// The value that is wanted for the profile.
    pub wanted: String,
    /// Why that value is wanted.
    pub why: &'static str,
    /// The effect of a change, and its cost.
    pub effect: &'static str,
    /// When a change takes effect.
    pub takes_effect: TakesEffect,
    /// The judgement.
    pub verdict: Verdict,
    /// Files and network cards that `--apply` changes.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "texts")]
    pub changes: Vec<Change>,
}

impl Line {
    /// Returns the place of the guide's section about the line.
    pub fn guide(&self) -> String {
        taut_api::guide::section("check", self.id)
    }
}

/// The part of a line that does not depend on what was found.
#[derive(Debug, Clone, Copy)]
pub(super) struct Item {
    pub(super) id: &'static str,
    pub(super) what: &'static str,
    pub(super) why: &'static str,
    pub(super) effect: &'static str,
    pub(super) takes_effect: TakesEffect,
}

impl Item {
    /// The same setting with the reasons of a profile that wants another value.
    pub(super) const fn because(self, why: &'static str, effect: &'static str) -> Self {
        Self { why, effect, ..self }
    }

    /// The line for a value that was found.
    pub(super) fn line(self, verdict: Verdict, found: impl Into<String>, wanted: impl Into<String>) -> Line {
        let Self { id, what, why, effect, takes_effect } = self;
        Line {
            id,
            what,
            found: found.into(),
            wanted: wanted.into(),
            why,
            effect,
            takes_effect,
            verdict,
            changes: Vec::new(),
        }
    }

    /// The line for a value that is not visible.
    pub(super) fn unknown(self, found: impl Into<String>, wanted: impl Into<String>) -> Line {
        self.line(Verdict::Unknown, found, wanted)
    }
}

/// The lines about one host, VM or guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The subject: `host`, `guest`, or a VM's name.
    pub subject: String,
    /// The profile for which it was checked.
    pub profile: Profile,
    /// The reason for the profile, if its user has not named one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile_because: Option<&'static str>,
    /// Number of lines with each verdict.
    pub summary: Summary,
    /// The lines.
    pub lines: Vec<Line>,
}

/// Number of lines with each verdict.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
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

impl Report {
    pub(super) fn new(subject: &str, profile: Profile, lines: Vec<Line>) -> Self {
        let count = |verdict| lines.iter().filter(|line| line.verdict == verdict).count();
        let summary = Summary {
            ok: count(Verdict::Ok),
            warn: count(Verdict::Warn),
            bad: count(Verdict::Bad),
            unknown: count(Verdict::Unknown),
        };
        Self { subject: subject.to_owned(), profile, profile_because: None, summary, lines }
    }

    /// Adds the reason for the profile.
    #[must_use]
    pub fn because(self, reason: Option<&'static str>) -> Self {
        Self { profile_because: reason, ..self }
    }

    /// All changes that `--apply` makes. Of two changes of the same file or card the first counts.
    pub fn changes(&self) -> Vec<Change> {
        let mut changes: Vec<Change> = Vec::new();
        for change in self.lines.iter().flat_map(|line| &line.changes) {
            if changes.iter().all(|earlier| !earlier.has_subject_of(change)) {
                changes.push(change.clone());
            }
        }
        changes
    }
}

fn texts<S: serde::Serializer>(changes: &[Change], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(changes.iter().map(ToString::to_string))
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
        f.write_str(match self {
            Self::Latency => "latency",
            Self::Throughput => "throughput",
            Self::Dense => "dense",
        })
    }
}

impl FromStr for Profile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Latency, Self::Throughput, Self::Dense]
            .into_iter()
            .find(|profile| profile.to_string() == text)
            .ok_or_else(|| format!("`{text}` is not a profile; use latency, throughput or dense"))
    }
}
