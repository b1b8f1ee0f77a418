//! The history of all subjects.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::chunk::{self, Chunk, Sample};
use crate::file::{self, Around, File, FileError};
use crate::series::{self, Grid, Series};
use crate::thinning::{DENSITIES, Density, EARLY, MAX_SAMPLES};
use crate::timeline::{Clocks, Timeline};
use crate::totals::{Read, Totals};
use crate::values::Values;

/// Time in ms after which the end of a rest is written although nothing was counted, once samples
/// of the rest are added. A process that is killed before loses only the end of the rest, and no
/// count.
const REST_WRITE_INTERVAL: u64 = 60_000;
/// Time in ms after which samples of a rest are added although it goes on.
const REST_RECORD_INTERVAL: u64 = 20_000;
/// Number of the next history that is opened.
static NUMBER: AtomicU64 = AtomicU64::new(0);
/// Samples of a density that are kept in memory in full chunks while the file cannot be written:
/// the last eight minutes of each second.
const MAX_UNWRITTEN: usize = 512;
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

/// A subject, and the part of its samples that is not in the file yet.
#[derive(Debug, Clone)]
struct Subject {
    id: i64,
    name: String,
    totals: Totals,
    /// Position of its last sample.
    last: u64,
    /// True if there was a reading since the history was opened.
    was_read: bool,
    /// True if its counters are the same up to [`History::rested`].
    rests: bool,
    /// True if the subject has a row in the file.
    is_in_file: bool,
    /// Its row in the file is missing, or has an old name or sum.
    row_changed: bool,
    /// When the next sample of each density is due. Most samples are of the densest one only. A
    /// sample that is not due at a density reads this and not the density's chunks.
    due: [Due; DENSITIES],
    growing: [Growing; DENSITIES],
}

/// The next sample of a density.
#[derive(Debug, Clone, Copy, Default)]
struct Due {
    /// The position from which on a sample is one of the density.
    at: u64,
    /// True unless the totals are known to be those of the last sample of the density.
    may_have_changed: bool,
}

/// The newest samples of a density.
#[derive(Debug, Clone, Default)]
struct Growing {
    /// The chunk that grows.
    chunk: Option<Begun>,
    /// Its samples that are not in the file.
    tail: Option<Chunk>,
    /// True if the tail has a sample that has to be written.
    has_unwritten: bool,
    /// True if the tail has more than a later end of the same rest.
    has_grown: bool,
    /// Position of the last sample in the file.
    written: u64,
    /// Chunks that are full, and not in the file as chunks.
    full: VecDeque<Begun>,
    /// Positions of the first samples of tails in the file, whose chunk was dropped while nothing
    /// could be written.
    lost: Vec<u64>,
}

/// A chunk, and where parts of it are in the file.
#[derive(Debug, Clone)]
struct Begun {
    chunk: Chunk,
    /// Positions of the first samples of its tails in the file.
    tails: Vec<u64>,
    /// The last tail has no more than the end of a rest, which the next one replaces.
    ends_in_rest: bool,
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
            let (last, totals) = (last.at, Totals::resume(earlier, last.totals));
            let due = Default::default();
            let (was_read, rests, is_in_file, row_changed) = (false, false, true, false);
            let subject =
                Subject { id, name, totals, last, was_read, rests, is_in_file, row_changed, due, growing };
            subjects.insert(key, Box::new(subject));
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
    /// its name now. A reading that is not after the last one is left out.
    pub fn record(&mut self, since_boot: u64, key: &str, name: &str, reading: &Values) {
        let at = self.timeline.position(since_boot);
        self.last = self.last.max(at);
        // Most readings are of subjects that are known.
        if let Some(subject) = self.subjects.get_mut(key) {
            subject.end_rest(self.densities, self.rested);
            subject.record(self.densities, at, name, reading);
            return;
        }
        let mut subject = Subject {
            id: self.next_id,
            name: name.to_owned(),
            totals: Totals::default(),
            last: 0,
            was_read: false,
            rests: false,
            is_in_file: false,
            row_changed: true,
            due: Default::default(),
            growing: Default::default(),
        };
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
        // While nothing can be written, no new subject gets into the file.
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
    /// before. If `from` is in a gap without samples, the period begins behind the gap.
    pub fn counted(&self, key: &str, from: u64, to: u64) -> Result<Option<Counted>, FileError> {
        let Some(subject) = self.subject(key) else { return Ok(None) };
        let begin = self.begin(&subject, from)?;
        let mut end: Option<Sample> = None;
        for density in 0..DENSITIES {
            let found = self.around(&subject, density, to)?.before;
            end = found.filter(|found| end.as_ref().is_none_or(|end| found.at > end.at)).or(end);
        }
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
        let mut chunks = self.file.chunks(subject.id, number, from.saturating_sub(grid.step), to)?;
        // Chunks in memory are not in the file as chunks yet.
        for chunk in subject.growing[number].in_memory() {
            chunks.insert(chunk.first(), chunk::decode(&chunk.encode()).unwrap_or_default());
        }
        let mut chunks: Vec<_> = chunks.into_values().collect();
        // The newest sample may not be one of the density.
        chunks.push(vec![Sample { at: subject.last, totals: subject.totals.last().clone() }]);
        Ok(series::series(&chunks, density, grid))
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

impl Subject {
    /// Records a reading at a position.
    fn record(&mut self, densities: [Density; DENSITIES], at: u64, name: &str, reading: &Values) {
        if at <= self.last {
            return;
        }
        if self.name != name {
            name.clone_into(&mut self.name);
            self.row_changed = true;
        }
        let read = self.totals.read(reading);
        self.row_changed |= read == Read::BegunAgain;
        self.was_read = true;
        self.add(densities, at, read);
    }

    /// Returns the position of the last sample, or `rested` if the subject rests and that is later.
    fn last_or_rested(&self, rested: u64) -> u64 {
        if self.rests { self.last.max(rested) } else { self.last }
    }

    /// Adds samples with the totals of the last one, up to the position `rested`. Equal totals are
    /// a rest only within one chunk. The first sample may fill a chunk and the second one begin the
    /// next, so both are one interval apart. The other densities have theirs when they are due.
    fn add_rest(&mut self, densities: [Density; DENSITIES], rested: u64) {
        let next = |number: u64| self.last.saturating_add(densities[0].every.saturating_mul(number));
        let due = |density: usize| self.due[density].at.saturating_add(EARLY);
        let mut positions = [next(1), next(2), due(1), due(2), rested];
        positions.sort_unstable();
        for at in positions {
            if at > self.last && at <= rested {
                self.add(densities, at, Read::Same);
            }
        }
    }

    /// Ends the rest, if there is one, with samples up to `rested`.
    fn end_rest(&mut self, densities: [Density; DENSITIES], rested: u64) {
        if std::mem::take(&mut self.rests) {
            self.add_rest(densities, rested);
        }
    }

    /// Adds the totals at a position, after a reading with this result.
    fn add(&mut self, densities: [Density; DENSITIES], at: u64, read: Read) {
        self.last = at;
        for ((growing, due), density) in self.growing.iter_mut().zip(&mut self.due).zip(densities) {
            due.may_have_changed |= read != Read::Same;
            if at < due.at {
                continue;
            }
            growing.add(density, at, self.totals.last(), !due.may_have_changed);
            *due = Due { at: density.due(at), may_have_changed: false };
        }
    }

    /// Ends all chunks that grow.
    fn end(&mut self) {
        self.growing.iter_mut().for_each(Growing::end);
        self.due = Default::default();
    }
}

impl Growing {
    /// Takes over the tails of chunks that an earlier process has not finished, in their order. The
    /// chunks are full: nobody took samples between the two processes.
    fn restore(&mut self, tails: Vec<file::Unfinished>) {
        let mut last = None;
        for file::Unfinished { chunk, first, samples } in tails {
            let mut is_same = last == Some(chunk);
            last = Some(chunk);
            for sample in samples {
                let begun = self.full.back_mut().filter(|begun| is_same && !begun.chunk.has(MAX_SAMPLES));
                match begun {
                    Some(begun) => _ = begun.chunk.add(sample.at, &sample.totals),
                    None => self.full.push_back(Begun::with(sample)),
                }
                is_same = true;
            }
            if let Some(begun) = self.full.back_mut() {
                begun.tails.push(first);
            }
        }
    }

    /// Adds a sample. `is_same` tells that the totals are those of the last one: a rest goes on
    /// without comparing them. Comparing would read other places in memory.
    fn add(&mut self, density: Density, at: u64, totals: &Values, is_same: bool) {
        let add = |chunk: &mut Chunk| {
            debug_assert!(!is_same || chunk.last().totals == *totals, "totals have changed unnoticed");
            if is_same && chunk.rest(at) { false } else { chunk.add(at, totals) }
        };
        let sample = || Sample { at, totals: totals.clone() };
        match &mut self.chunk {
            Some(begun) if !begun.chunk.has(density.chunk) => {
                self.has_grown |= add(&mut begun.chunk);
                self.has_unwritten |= self.has_grown || at > self.written + REST_WRITE_INTERVAL;
            }
            _ => {
                self.end();
                while self.full.len() * density.chunk > MAX_UNWRITTEN {
                    self.lost.extend(self.full.pop_front().into_iter().flat_map(|lost| lost.tails));
                }
                self.chunk = Some(Begun::with(sample()));
                (self.has_grown, self.has_unwritten) = (true, true);
            }
        }
        match &mut self.tail {
            Some(tail) => _ = add(tail),
            None => self.tail = Some(Chunk::begin(sample())),
        }
    }

    /// Returns the chunk that grows and its tail, if that has to be written.
    fn unwritten(&self) -> Option<(&Begun, &Chunk)> {
        self.chunk.as_ref().zip(self.tail.as_ref()).filter(|_| self.has_unwritten)
    }

    /// Notes that all of them are in the file.
    fn mark_written(&mut self) {
        self.full.clear();
        self.lost.clear();
        if !std::mem::take(&mut self.has_unwritten) {
            return;
        }
        let has_grown = std::mem::take(&mut self.has_grown);
        if let Some((begun, tail)) = self.chunk.as_mut().zip(self.tail.take()) {
            if begun.replaced_tail(has_grown).is_some() {
                begun.tails.pop();
            }
            begun.tails.push(tail.first());
            begun.ends_in_rest = !has_grown;
            self.written = tail.last().at;
        }
    }

    /// Ends the chunk that grows.
    fn end(&mut self) {
        self.full.extend(self.chunk.take());
        self.tail = None;
        (self.has_unwritten, self.has_grown) = (false, false);
    }

    /// Returns the chunks in memory, the oldest first.
    fn in_memory(&self) -> impl Iterator<Item = &Chunk> {
        self.full.iter().chain(&self.chunk).map(|begun| &begun.chunk)
    }

    fn is_empty(&self) -> bool {
        self.full.is_empty() && self.chunk.is_none()
    }
}

impl Begun {
    fn with(sample: Sample) -> Self {
        Self { chunk: Chunk::begin(sample), tails: Vec::new(), ends_in_rest: false }
    }

    /// Returns the tail in the file that the next one replaces: a rest has one end.
    fn replaced_tail(&self, has_grown: bool) -> Option<u64> {
        self.tails.last().copied().filter(|_| self.ends_in_rest && !has_grown)
    }
}

#[cfg(test)]
mod tests;
