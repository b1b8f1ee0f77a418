//! Counts of subjects over a period before now.

use taut_api::statistics::Period;
use taut_history::{Clocks, Counted, FileError, History};

/// A period before now, by positions of the history's timeline.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    begin: u64,
    end: u64,
    now: Clocks,
}

/// The counts of one subject.
#[derive(Debug)]
pub(super) struct Counts {
    pub(super) key: String,
    pub(super) name: String,
    pub(super) counted: Counted,
    /// End of the time that is covered, in ms since the Unix epoch.
    pub(super) to_ms: u64,
}

impl Span {
    /// Returns the period before now.
    pub(super) fn of(history: &History, period: Period, now: Clocks) -> Self {
        let end = history.timeline().position(now.since_boot);
        Self { begin: end.saturating_sub(period.ms()), end, now }
    }

    /// Returns the keys and names of the subjects with samples in the period, of those that
    /// `is_asked` selects by their keys.
    pub(super) fn subjects(self, history: &History, is_asked: fn(&str) -> bool) -> Vec<(String, String)> {
        let since = history.subjects_since(self.begin).into_iter().filter(|(key, _)| is_asked(key));
        since.map(|(key, name)| (key.to_owned(), name.to_owned())).collect()
    }

    /// Returns what a subject has counted; nothing without two samples.
    pub(super) fn counts(
        self,
        history: &History,
        (key, name): (String, String),
    ) -> Result<Option<Counts>, FileError> {
        let counted = history.counted(&key, self.begin, self.end)?;
        Ok(counted.map(|counted| {
            let to_ms = history.timeline().wall(counted.to, self.now);
            Counts { key, name, counted, to_ms }
        }))
    }
}

/// Returns the counts of all subjects that `is_asked` selects by their keys.
#[cfg(test)]
pub(super) fn all(history: &History, period: &str, now: Clocks, is_asked: fn(&str) -> bool) -> Vec<Counts> {
    let span = Span::of(history, period.parse().unwrap(), now);
    let subjects = span.subjects(history, is_asked).into_iter();
    subjects.filter_map(|subject| span.counts(history, subject).unwrap()).collect()
}
