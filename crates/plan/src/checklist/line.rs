//! What a line of the checklist says.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;
use taut_api::check::Change;

/// What a host or VM is for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// A few microseconds count, CPU time and power do not.
    #[default]
    Latency,
    /// Bytes and transactions count.
    Throughput,
    /// As many VMs as possible (S4).
    Dense,
}

/// What is to be thought of what was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As wanted, or of no consequence here.
    Ok,
    /// Not as wanted; costs a little, or has a price that not everybody pays.
    Warn,
    /// Not as wanted.
    Bad,
    /// Cannot be seen from here.
    Unknown,
}

/// When a change takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TakesEffect {
    /// At once.
    Live,
    /// When the VM is started again.
    VmRestart,
    /// When the host is booted again.
    HostBoot,
    /// When the host is booted again, and its firmware's settings were changed.
    Bios,
    /// When the guest is booted again.
    GuestBoot,
}

/// A line of the checklist.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Line {
    /// Its name: topic and item.
    pub id: &'static str,
    /// What is looked at.
    pub what: &'static str,
    /// What was found.
    pub found: String,
    /// What is wanted for the profile.
    pub wanted: String,
    /// Why it is wanted.
    pub why: &'static str,
    /// What comes of changing it, and what that costs.
    pub effect: &'static str,
    /// When a change takes effect.
    pub takes_effect: TakesEffect,
    /// What is to be thought of it.
    pub verdict: Verdict,
    /// Files that `--apply` changes.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "paths")]
    pub changes: Vec<Change>,
}

/// What is the same for a line whatever is found.
#[derive(Debug, Clone, Copy)]
pub(super) struct Item {
    pub(super) id: &'static str,
    pub(super) what: &'static str,
    pub(super) why: &'static str,
    pub(super) effect: &'static str,
    pub(super) takes_effect: TakesEffect,
}

impl Item {
    /// The line for what was found.
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

    /// The line for what cannot be seen.
    pub(super) fn unknown(self, found: impl Into<String>, wanted: impl Into<String>) -> Line {
        self.line(Verdict::Unknown, found, wanted)
    }
}

/// All lines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// What was judged: `host`, `guest`, or a VM's name.
    pub subject: String,
    /// For what it was judged.
    pub profile: Profile,
    /// How many lines have which verdict.
    pub summary: Summary,
    /// The lines.
    pub lines: Vec<Line>,
}

/// How many lines have which verdict.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// As wanted.
    pub ok: usize,
    /// Not quite.
    pub warn: usize,
    /// Not as wanted.
    pub bad: usize,
    /// Not visible.
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
        Self { subject: subject.to_owned(), profile, summary, lines }
    }

    /// Everything that can be changed at once, without repetitions: of two changes of a file the first counts.
    pub fn changes(&self) -> Vec<Change> {
        let mut changes: Vec<Change> = Vec::new();
        for change in self.lines.iter().flat_map(|line| &line.changes) {
            if changes.iter().all(|earlier| earlier.path != change.path) {
                changes.push(change.clone());
            }
        }
        changes
    }
}

fn paths<S: serde::Serializer>(changes: &[Change], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(changes.iter().map(|change| format!("{} = {}", change.path, change.value)))
}

impl Verdict {
    /// One word.
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
    /// One word.
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
            .ok_or_else(|| format!("`{text}` is no profile: latency, throughput or dense"))
    }
}
