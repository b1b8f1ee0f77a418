//! A subject, and when its samples are due.

use crate::chunk::Sample;
use crate::growing::Growing;
use crate::reading::Reading;
use crate::thinning::{DENSITIES, Density, EARLY};
use crate::totals::{Read, Totals};
use crate::values::Values;

/// A subject, and the part of its samples that is not in the file yet.
#[derive(Debug, Clone)]
pub(crate) struct Subject {
    pub(crate) id: i64,
    pub(crate) name: String,
    pub(crate) totals: Totals,
    /// Position of its last sample.
    pub(crate) last: u64,
    /// True if there was a reading since the history was opened.
    pub(crate) was_read: bool,
    /// True if its counters are the same up to the position that the history has for all that rest.
    pub(crate) rests: bool,
    /// True if the subject has a row in the file.
    pub(crate) is_in_file: bool,
    /// Its row in the file is missing, or has an old name or sum.
    pub(crate) row_changed: bool,
    /// When the next sample of each density is due. Most samples are of the densest one only. A
    /// sample that is not due at a density reads this and not the density's chunks.
    due: [Due; DENSITIES],
    pub(crate) growing: [Growing; DENSITIES],
}

/// The next sample of a density.
#[derive(Debug, Clone, Copy, Default)]
struct Due {
    /// The position from which on a sample is one of the density.
    at: u64,
    /// True unless the totals are known to be those of the last sample of the density.
    may_have_changed: bool,
}

impl Subject {
    /// Begins a subject that nobody has read yet, and that is not in the file.
    pub(crate) fn new(id: i64, name: &str) -> Self {
        Self {
            id,
            name: name.to_owned(),
            totals: Totals::default(),
            last: 0,
            was_read: false,
            rests: false,
            is_in_file: false,
            row_changed: true,
            due: Default::default(),
            growing: Default::default(),
        }
    }

    /// Continues a subject of the file after its last sample there.
    pub(crate) fn resume(
        id: i64,
        name: String,
        earlier: Values,
        last: Sample,
        growing: [Growing; DENSITIES],
    ) -> Self {
        Self {
            id,
            name,
            totals: Totals::resume(earlier, last.totals),
            last: last.at,
            was_read: false,
            rests: false,
            is_in_file: true,
            row_changed: false,
            due: Default::default(),
            growing,
        }
    }

    /// Records a reading at a position.
    pub(crate) fn record(&mut self, densities: [Density; DENSITIES], at: u64, name: &str, reading: &Reading) {
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

    /// Returns its last sample.
    pub(crate) fn last_sample(&self) -> Sample {
        Sample { at: self.last, totals: self.totals.last().clone() }
    }

    /// Returns the position of the last sample, or `rested` if the subject rests and that is later.
    pub(crate) fn last_or_rested(&self, rested: u64) -> u64 {
        if self.rests { self.last.max(rested) } else { self.last }
    }

    /// Adds samples with the totals of the last one, up to the position `rested`. Equal totals are
    /// a rest only within one chunk. The first sample may fill a chunk and the second one begin the
    /// next, so both are one interval apart. The other densities have theirs when they are due.
    pub(crate) fn add_rest(&mut self, densities: [Density; DENSITIES], rested: u64) {
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
    pub(crate) fn end_rest(&mut self, densities: [Density; DENSITIES], rested: u64) {
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
    pub(crate) fn end(&mut self) {
        self.growing.iter_mut().for_each(Growing::end);
        self.due = Default::default();
    }
}
