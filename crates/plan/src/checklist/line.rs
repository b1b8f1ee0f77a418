//! A line of the checklist, and the report that collects all lines.

use serde::Serialize;
use taut_api::check::{Change, CheckLine, CheckReport};

pub use taut_api::check::{Profile, Summary, TakesEffect, Verdict};

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

impl From<Report> for CheckReport {
    fn from(report: Report) -> Self {
        let line = |line: Line| CheckLine {
            id: line.id.to_owned(),
            what: line.what.to_owned(),
            found: line.found,
            wanted: line.wanted,
            why: line.why.to_owned(),
            effect: line.effect.to_owned(),
            takes_effect: line.takes_effect,
            verdict: line.verdict,
            changes: line.changes.iter().map(ToString::to_string).collect(),
        };
        Self {
            subject: report.subject,
            profile: report.profile,
            profile_because: report.profile_because.map(str::to_owned),
            summary: report.summary,
            lines: report.lines.into_iter().map(line).collect(),
        }
    }
}

fn texts<S: serde::Serializer>(changes: &[Change], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(changes.iter().map(ToString::to_string))
}

#[cfg(test)]
mod tests {
    use taut_api::check::HostFacts;

    use super::*;

    #[test]
    fn the_report_of_the_api_is_that_of_the_command_line() {
        let report = crate::checklist::host(&HostFacts::default(), Profile::Dense).because(Some("a test"));
        let json = serde_json::to_value(&report).unwrap();
        let read: CheckReport = serde_json::from_value(json.clone()).unwrap();
        assert!(!read.lines.is_empty());
        assert_eq!(read, CheckReport::from(report));
        assert_eq!(serde_json::to_value(&read).unwrap(), json);
    }
}
