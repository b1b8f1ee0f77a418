//! The history of all subjects.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::chunk::{self, Chunk, Sample};
use crate::file::{self, Around, File, FileError};
use crate::growing::{Begun, Growing};
use crate::reading::Reading;
use crate::series::{Grid, Series, Steps};
use crate::subject::Subject;
use crate::thinning::{DENSITIES, Density, EARLY};
use crate::timeline::{Clocks, Timeline};
use crate::values::Values;

/// Time in ms after which samples of a rest are added although it goes on.
const REST_RECORD_INTERVAL: u64 = 20_000;
/// Number of the next history that is opened.
static NUMBER: AtomicU64 = AtomicU64::new(0);
/// A position after all others that the file can hold.
const LATEST: u64 = i64::MAX as u64;

/// The growth of a subject's counters between two samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counted {
    /// Position of the first sample.
    pub from: u64,
    /// Position of the last sample.
    pub to: u64,
    /// The growth between these two.
    pub values: Values,
    /// The totals at the last sample.
    pub totals: Values,
}

impl Counted {
    /// Returns the time between the two samples in ms.
    pub fn ms(&self) -> u64 {
        self.to.saturating_sub(self.from)
    }
}

/// Samples of subjects over time.
#[derive(Debug)]
pub struct History {
    /// Number of this history. Each one that the process opens has another.
    number: u64,
    file: File,
    densities: [Density; DENSITIES],
    timeline: Timeline,
    /// Position of the last sample of any subject.
    last: u64,
    /// Position up to which the counters of all subjects that rest are known to be the same. Their
    /// samples are added every [`REST_RECORD_INTERVAL`] only: a rest is no more than its two ends.
    rested: u64,
    /// Position at which samples of rests were last added.
    rests_recorded: u64,
    /// Number of the next new subject.
    next_id: i64,
    /// Subjects by key. Each reading looks one up, and a hash map reads the fewest keys for that.
    subjects: HashMap<String, Box<Subject>>,
    /// Subjects in the file that have to be deleted there.
    forgotten: Vec<file::Forgotten>,
}

impl History {
    /// Opens the history in a file, and creates it if there is none. `boot` names the boot of the
    /// host.
    pub fn open(
        path: &Path,
        densities: [Density; DENSITIES],
        boot: &str,
        clocks: Clocks,
    ) -> Result<Self, FileError> {
        let file = File::open(path)?;
        let timeline = Timeline::resume(file.mark()?, boot, clocks);
        let mut subjects = HashMap::new();
        let (mut next_id, mut newest) = (1, 0);
        // A sample of the future is damaged. It would make all others old.
        let now = timeline.position(clocks.since_boot);
        let mut tails = file.tails()?;
        for file::Subject { id, key, name, earlier } in file.subjects()? {
            next_id = next_id.max(id.saturating_add(1));
            let mut last = Sample::default();
            let mut growing: [Growing; DENSITIES] = Default::default();
            for (density, growing) in growing.iter_mut().enumerate() {
                growing.restore(tails.remove(&(id, density)).unwrap_or_default());
                let restored = growing.full.back().map(|begun| begun.chunk.last().clone());
                let found = [file.around(id, density, LATEST)?.before, restored];
                last = found
                    .into_iter()
                    .flatten()
                    .rfind(|sample| sample.at > last.at && sample.at <= now)
                    .unwrap_or(last);
            }
            newest = newest.max(last.at);
            subjects.insert(key, Box::new(Subject::resume(id, name, earlier, last, growing)));
        }
        let forgotten = Vec::new();
        let (rested, rests_recorded) = (0, 0);
        Ok(Self {
            number: NUMBER.fetch_add(1, Relaxed),
            file,
            densities,
            timeline,
            last: newest,
            rested,
            rests_recorded,
            next_id,
            subjects,
            forgotten,
        })
    }

    /// Returns the number of this history, which no other one of the process has.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the timeline of positions.
    pub fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// Records a reading of a subject's counters. `key` identifies the subject for good, `name` is
    /// its name now. A reading that is not after the last one is left out. A counter that the
    /// reading lacks keeps its total.
    pub fn record(&mut self, since_boot: u64, key: &str, name: &str, reading: &Reading) {
        let at = self.timeline.position(since_boot);
        self.last = self.last.max(at);
        // Most readings are of subjects that are known.
        if let Some(subject) = self.subjects.get_mut(key) {
            subject.end_rest(self.densities, self.rested);
            subject.record(self.densities, at, name, reading);
            return;
        }
        let mut subject = Subject::new(self.next_id, name);
        self.next_id = self.next_id.saturating_add(1);
        subject.record(self.densities, at, name, reading);
        self.subjects.insert(key.to_owned(), Box::new(subject));
    }

    /// Marks a subject as one that rests: its counters are those of its last reading at each
    /// [`History::rest_until`], until there is another reading. Returns false, and marks nothing,
    /// if there was no reading since the history was opened.
    pub fn begin_rest(&mut self, key: &str) -> bool {
        let Some(subject) = self.subjects.get_mut(key).filter(|subject| subject.was_read) else {
            return false;
        };
        subject.end_rest(self.densities, self.rested);
        subject.rests = true;
        true
    }

    /// Records that the counters of all subjects that rest are as before.
    pub fn rest_until(&mut self, since_boot: u64) {
        self.rested = self.timeline.position(since_boot);
        self.last = self.last.max(self.rested);
        if self.rested < self.rests_recorded.saturating_add(REST_RECORD_INTERVAL - EARLY) {
            return;
        }
        self.rests_recorded = self.rested;
        for subject in self.subjects.values_mut().filter(|subject| subject.rests) {
            subject.add_rest(self.densities, self.rested);
        }
    }

    /// Writes all that is not in the file yet. If that fails, the next call tries it again.
    ///
    /// Samples are appended to the file as tails of the chunks that grow. A chunk itself is written
    /// once, when it is full.
    pub fn write(&mut self) -> Result<(), FileError> {
        let mut news = file::News { forgotten: self.forgotten.clone(), ..file::News::default() };
        for (key, subject) in &self.subjects {
            if subject.row_changed {
                news.subjects.push(file::Subject {
                    id: subject.id,
                    key: key.clone(),
                    name: subject.name.clone(),
                    earlier: subject.totals.earlier().clone(),
                });
            }
            for (density, growing) in subject.growing.iter().enumerate() {
                let row = |chunk: &Chunk| file::Chunk {
                    subject: subject.id,
                    density,
                    first: chunk.first(),
                    last: chunk.last().at,
                    samples: chunk.encode(),
                };
                for Begun { chunk, tails, .. } in &growing.full {
                    news.chunks.push(row(chunk));
                    news.replaced.extend(tails.iter().map(|first| (subject.id, density, *first)));
                }
                news.replaced.extend(growing.lost.iter().map(|first| (subject.id, density, *first)));
                if let Some((begun, tail)) = growing.unwritten() {
                    let replaced = begun.replaced_tail(growing.has_grown);
                    news.replaced.extend(replaced.map(|first| (subject.id, density, first)));
                    news.tails.push(file::Tail { chunk: begun.chunk.first(), row: row(tail) });
                }
            }
        }
        self.file.write(&self.timeline.mark(self.last), &news)?;
        self.forgotten.clear();
        for subject in self.subjects.values_mut() {
            (subject.row_changed, subject.is_in_file) = (false, true);
            subject.growing.iter_mut().for_each(Growing::mark_written);
        }
        Ok(())
    }

    /// Deletes samples of a part of the subjects that are older than they are kept for, and
    /// subjects that have no samples left. Each subject is in one of `parts` parts; a call deals
    /// with the part of this number.
    pub fn prune(&mut self, part: u64, parts: u64) -> Result<(), FileError> {
        let before = self.densities.map(|density| self.last.saturating_sub(density.kept));
        let due = self.subjects.values().filter(|subject| subject.id.cast_unsigned() % parts == part % parts);
        let due: Vec<_> =
            due.map(|subject| (subject.id, subject.growing.iter().all(Growing::is_empty))).collect();
        if due.is_empty() {
            return Ok(());
        }
        let gone = self.file.prune(&due, &before)?;
        if !gone.is_empty() {
            self.subjects.retain(|_, subject| !gone.contains(&subject.id));
        }
        Ok(())
    }

    /// Notes that all subjects but these are gone: nothing more is read of them. Their samples
    /// stay.
    pub fn end_others(&mut self, keep: impl Fn(&str) -> bool) {
        for (_, subject) in self.subjects.iter_mut().filter(|(key, _)| !keep(key)) {
            subject.end_rest(self.densities, self.rested);
            subject.end();
        }
    }

    /// Keeps the `most` subjects with the newest samples among those that are `bounded`, and
    /// forgets the others. The next call of [`History::write`] deletes them in the file.
    pub fn keep_newest(&mut self, most: usize, bounded: impl Fn(&str) -> bool) {
        let found = || self.subjects.iter().filter(|(key, _)| bounded(key));
        let Some(old @ 1..) = found().count().checked_sub(most) else { return };
        let mut found: Vec<_> =
            found().map(|(key, subject)| (subject.last_or_rested(self.rested), key.clone())).collect();
        found.sort_unstable();
        let forgotten = found.drain(..old).filter_map(|(_, key)| self.subjects.remove(&key));
        // A subject that was never written has no rows to delete.
        let in_file = forgotten.filter(|subject| subject.is_in_file);
        self.forgotten.extend(in_file.map(|subject| {
            let Subject { id, growing, .. } = *subject;
            let tails = growing.iter().enumerate().flat_map(|(density, growing)| {
                let begun = growing.full.iter().chain(&growing.chunk);
                let tails = begun.flat_map(|begun| &begun.tails).chain(&growing.lost);
                tails.map(move |first| (density, *first))
            });
            file::Forgotten { subject: id, tails: tails.collect() }
        }));
    }

    /// Returns the subjects that have a sample at a position or after it: keys and names, in the
    /// order of keys.
    pub fn subjects_since(&self, position: u64) -> Vec<(&str, &str)> {
        let since =
            self.subjects.iter().filter(|(_, subject)| subject.last_or_rested(self.rested) >= position);
        let mut found: Vec<_> = since.map(|(key, subject)| (key.as_str(), subject.name.as_str())).collect();
        found.sort_unstable();
        found
    }

    /// Returns the number of subjects.
    pub fn len(&self) -> usize {
        self.subjects.len()
    }

    /// Returns whether there are no subjects.
    pub fn is_empty(&self) -> bool {
        self.subjects.is_empty()
    }

    /// Returns the position of a subject's last sample.
    pub fn last(&self, key: &str) -> Option<u64> {
        self.subjects.get(key).map(|subject| subject.last_or_rested(self.rested))
    }

    /// Returns the growth of a subject's counters between two positions, as far as there are
    /// samples; none if there are no two of them.
    ///
    /// The period begins at `from` if the subject rested then, and otherwise at the last sample
    /// before. It ends at `to`, or at the last sample before, in the same way. If `from` is in a
    /// gap without samples, the period begins behind the gap.
    pub fn counted(&self, key: &str, from: u64, to: u64) -> Result<Option<Counted>, FileError> {
        let Some(subject) = self.subject(key) else { return Ok(None) };
        let begin = self.begin(&subject, from)?;
        let end = self.end(&subject, to)?;
        Ok(begin.zip(end).filter(|(begin, end)| begin.at < end.at).map(|(begin, end)| Counted {
            from: begin.at,
            to: end.at,
            values: end.totals.since(&begin.totals),
            totals: end.totals,
        }))
    }

    /// Returns the growth of a subject's counters between two positions in at most `most` steps,
    /// and parts of steps at both ends. The samples are of the densest density that is kept for so
    /// long. Of a subject that is not known, there are no points.
    pub fn series(&self, key: &str, from: u64, to: u64, most: u64) -> Result<Series, FileError> {
        let to = to.min(LATEST);
        let period = to.saturating_sub(from);
        let reaches = |density: &Density| density.kept >= period;
        let number = self.densities.iter().position(reaches).unwrap_or(DENSITIES - 1);
        let density = self.densities[number];
        let grid = Grid::new(from, to, density, most, self.timeline.position(0));
        let Some(subject) = self.subject(key) else {
            return Ok(Series { step: grid.step, points: Vec::new() });
        };
        let mut steps = Steps::new(density, grid);
        let begin = from.saturating_sub(grid.step);
        self.file.each_chunk(subject.id, number, [begin, to], |chunk| steps.add(chunk))?;
        // Chunks in memory are not in the file as chunks yet, and are newer.
        for chunk in subject.growing[number].in_memory() {
            steps.add(chunk::decode(&chunk.encode()).unwrap_or_default());
        }
        // The newest sample may not be one of the density.
        steps.add(vec![subject.last_sample()]);
        Ok(steps.finish())
    }

    /// Returns a subject with all of its samples.
    fn subject(&self, key: &str) -> Option<Cow<'_, Subject>> {
        let subject = self.subjects.get(key)?;
        if subject.last_or_rested(self.rested) == subject.last {
            return Some(Cow::Borrowed(subject));
        }
        let mut subject = Subject::clone(subject);
        subject.add_rest(self.densities, self.rested);
        Some(Cow::Owned(subject))
    }

    /// Returns the sample at which a period begins, of the densest density that reaches so far
    /// back.
    fn begin(&self, subject: &Subject, from: u64) -> Result<Option<Sample>, FileError> {
        let mut later = None;
        for (number, density) in self.densities.iter().enumerate() {
            let Around { before, after } = self.around(subject, number, from)?;
            if let (Some(before), Some(after)) = (before, &after) {
                if before.totals == after.totals {
                    return Ok(Some(Sample { at: from, totals: before.totals }));
                }
                let is_near = from - before.at < 2 * density.every;
                return Ok(Some(if is_near { before } else { after.clone() }));
            }
            // If no density reaches back, the earliest sample of all.
            let is_earlier =
                |new: &Sample, old: &Option<Sample>| old.as_ref().is_none_or(|old| new.at < old.at);
            if let Some(after) = after.filter(|after| is_earlier(after, &later)) {
                later = Some(after);
            }
        }
        Ok(later)
    }

    /// Returns the last sample at which a period ends or before.
    fn end(&self, subject: &Subject, to: u64) -> Result<Option<Sample>, FileError> {
        // Most periods end now.
        if to >= subject.last {
            return Ok(Some(subject.last_sample()));
        }
        let mut end: Option<Sample> = None;
        for density in 0..DENSITIES {
            let Around { before, after } = self.around(subject, density, to)?;
            // A rest has samples at both ends only.
            if let (Some(before), Some(after)) = (&before, after)
                && before.totals == after.totals
            {
                return Ok(Some(Sample { at: to, totals: after.totals }));
            }
            end = before.filter(|found| end.as_ref().is_none_or(|end| found.at > end.at)).or(end);
        }
        Ok(end)
    }

    /// Returns the samples of a density around a position.
    fn around(&self, subject: &Subject, number: usize, at: u64) -> Result<Around, FileError> {
        let at = at.min(LATEST);
        let mut around = self.file.around(subject.id, number, at)?;
        for chunk in subject.growing[number].in_memory() {
            around.look(chunk::decode(&chunk.encode()).unwrap_or_default(), at);
        }
        Ok(around)
    }
}

#[cfg(test)]
mod tests;
