//! The newest samples of one density of a subject: the chunk that grows, and what of it is in the
//! file.

use std::collections::VecDeque;

use crate::chunk::{Chunk, Sample};
use crate::file;
use crate::thinning::{Density, MAX_SAMPLES};
use crate::values::Values;

/// Time in ms after which the end of a rest is written although nothing was counted, once samples
/// of the rest are added. A process that is killed before loses only the end of the rest, and no
/// count.
pub(crate) const REST_WRITE_INTERVAL: u64 = 60_000;
/// Samples of a density that are kept in memory in full chunks while the file cannot be written:
/// the last eight minutes of each second.
pub(crate) const MAX_UNWRITTEN: usize = 512;

/// The newest samples of a density.
#[derive(Debug, Clone, Default)]
pub(crate) struct Growing {
    /// The chunk that grows.
    pub(crate) chunk: Option<Begun>,
    /// Its samples that are not in the file.
    tail: Option<Chunk>,
    /// True if the tail has a sample that has to be written.
    has_unwritten: bool,
    /// False if the tail has no more than a later end of the rest with which the last written tail
    /// has ended. It replaces that tail then.
    pub(crate) has_grown: bool,
    /// Position of the last sample in the file.
    written: u64,
    /// Chunks that are full, and not in the file as chunks.
    pub(crate) full: VecDeque<Begun>,
    /// Positions of the first samples of tails in the file, whose chunk was dropped while nothing
    /// could be written.
    pub(crate) lost: Vec<u64>,
}

/// A chunk, and where parts of it are in the file.
#[derive(Debug, Clone)]
pub(crate) struct Begun {
    pub(crate) chunk: Chunk,
    /// Positions of the first samples of its tails in the file.
    pub(crate) tails: Vec<u64>,
    /// True if the last tail in the file has no more than a later end of a rest. The next tail
    /// replaces it if that, too, has no more.
    ends_in_rest: bool,
}

impl Growing {
    /// Takes over the tails of chunks that an earlier process has not finished, in their order. The
    /// chunks are full: nobody took samples between the two processes.
    pub(crate) fn restore(&mut self, tails: Vec<file::Unfinished>) {
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
    pub(crate) fn add(&mut self, density: Density, at: u64, totals: &Values, is_same: bool) {
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
    pub(crate) fn unwritten(&self) -> Option<(&Begun, &Chunk)> {
        self.chunk.as_ref().zip(self.tail.as_ref()).filter(|_| self.has_unwritten)
    }

    /// Notes that all of them are in the file.
    pub(crate) fn mark_written(&mut self) {
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
    pub(crate) fn end(&mut self) {
        self.full.extend(self.chunk.take());
        self.tail = None;
        (self.has_unwritten, self.has_grown) = (false, false);
    }

    /// Returns the chunks in memory, the oldest first.
    pub(crate) fn in_memory(&self) -> impl Iterator<Item = &Chunk> {
        self.full.iter().chain(&self.chunk).map(|begun| &begun.chunk)
    }

    /// Returns whether nothing is in memory.
    pub(crate) fn is_empty(&self) -> bool {
        self.full.is_empty() && self.chunk.is_none()
    }
}

impl Begun {
    pub(crate) fn with(sample: Sample) -> Self {
        Self { chunk: Chunk::begin(sample), tails: Vec::new(), ends_in_rest: false }
    }

    /// Returns the tail in the file that the next one replaces: a rest has one end.
    pub(crate) fn replaced_tail(&self, has_grown: bool) -> Option<u64> {
        self.tails.last().copied().filter(|_| self.ends_in_rest && !has_grown)
    }
}
