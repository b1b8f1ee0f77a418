//! Growth of counters step by step, for charts.
//!
//! A period is divided into steps of equal length. Each pair of neighbouring samples belongs to the
//! step in which its later sample is. A pair that is too far apart is a gap, because nobody took
//! samples between: it belongs to no step, so that the chart has a hole there. A rest, of which
//! only both ends are stored, is no gap.

use std::collections::BTreeMap;

use crate::chunk::Sample;
use crate::thinning::{Density, EARLY};
use crate::values::Values;

/// Distance of two samples, in intervals of their density, from which on it is a gap.
const GAP: u64 = 3;

/// The growth of a subject's counters within one step.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Point {
    /// Position of the last sample, in ms.
    pub to: u64,
    /// Time that the samples cover, in ms: less than a step beside a gap.
    pub ms: u64,
    /// The growth in that time.
    pub values: Values,
}

/// The growth of a subject's counters over a period.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Series {
    /// Length of a step in ms.
    pub step: u64,
    /// Steps with samples, from the oldest to the newest. Steps in gaps are absent.
    pub points: Vec<Point>,
}

/// How a period is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Grid {
    /// Begin of the period.
    pub(crate) from: u64,
    /// End of the period.
    pub(crate) to: u64,
    /// Length of a step in ms, at least the interval of the samples.
    pub(crate) step: u64,
    /// A position at which samples are due. Steps begin and end a bit after such positions, so that
    /// samples that are late by some ms are in the same step as those that are not.
    pub(crate) due: u64,
}

impl Grid {
    /// Divides a period into at most `most` steps, and parts of steps at both ends.
    pub(crate) fn new(from: u64, to: u64, density: Density, most: u64, due: u64) -> Self {
        let intervals = to.saturating_sub(from).div_ceil(most.max(1).saturating_mul(density.every));
        Self { from, to, step: density.every.saturating_mul(intervals.max(1)), due }
    }

    /// Returns the number of the step in which a position is.
    fn number(self, at: u64) -> u64 {
        (at.saturating_add(self.step) - self.offset()) / self.step
    }

    /// Returns the end of a step.
    fn end(self, number: u64) -> u64 {
        number.saturating_mul(self.step).saturating_add(self.offset())
    }

    fn offset(self) -> u64 {
        self.due.saturating_add(EARLY) % self.step
    }
}

/// Makes the points of a period from samples of one density. The samples come chunk by chunk, the
/// oldest first, and are not kept: a long period has very many.
#[derive(Debug)]
pub(crate) struct Steps {
    density: Density,
    grid: Grid,
    points: BTreeMap<u64, Point>,
    /// The newest sample so far.
    before: Option<Sample>,
}

impl Steps {
    /// Begins without samples.
    pub(crate) fn new(density: Density, grid: Grid) -> Self {
        Self { density, grid, points: BTreeMap::new(), before: None }
    }

    /// Adds a chunk. Equal totals far apart are a rest if they are in the same chunk.
    pub(crate) fn add(&mut self, chunk: Vec<Sample>) {
        for (index, sample) in chunk.into_iter().enumerate() {
            if let Some(before) = self.before.as_ref().filter(|before| before.at < sample.at) {
                if index > 0 && before.totals == sample.totals {
                    rest(&mut self.points, self.grid, before.at, sample.at);
                } else if sample.at - before.at <= GAP * self.density.every {
                    count(&mut self.points, self.grid, before, &sample);
                }
            }
            self.before = Some(sample);
        }
    }

    /// Returns the points of all steps that have samples.
    pub(crate) fn finish(self) -> Series {
        Series { step: self.grid.step, points: self.points.into_values().collect() }
    }
}

/// Adds the growth between two samples, if the later one is in the period.
fn count(steps: &mut BTreeMap<u64, Point>, grid: Grid, before: &Sample, sample: &Sample) {
    if sample.at <= grid.from || sample.at > grid.to {
        return;
    }
    let point = steps.entry(grid.number(sample.at)).or_default();
    point.to = sample.at;
    point.ms += sample.at - before.at;
    point.values.grow(&sample.totals.since(&before.totals));
}

/// Adds a rest to all steps in which it is.
fn rest(steps: &mut BTreeMap<u64, Point>, grid: Grid, from: u64, to: u64) {
    let (mut at, to) = (from.max(grid.from), to.min(grid.to));
    while at < to {
        let number = grid.number(at);
        let end = grid.end(number).min(to);
        let point = steps.entry(number).or_default();
        point.to = end;
        point.ms += end - at;
        at = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thinning::USUAL;

    fn sample(at: u64, total: u64) -> Sample {
        Sample { at, totals: Values::new([(1, total)]) }
    }

    fn points(chunks: &[Vec<Sample>], from: u64, to: u64, most: u64) -> Vec<(u64, u64, u64)> {
        let grid = Grid::new(from, to, USUAL[0], most, 0);
        let mut steps = Steps::new(USUAL[0], grid);
        for chunk in chunks {
            steps.add(chunk.clone());
        }
        let found = steps.finish();
        found.points.iter().map(|point| (point.to, point.ms, point.values.get(1))).collect()
    }

    #[test]
    fn samples_that_are_a_bit_late_make_one_point_each() {
        let late = [0, 300, 20, 499, 0, 7];
        let samples: Vec<_> =
            (0_u64..6).map(|n| sample(10_000 + 1000 * n + late[n as usize], 10 * n)).collect();
        let found = points(&[samples[..3].to_vec(), samples[3..].to_vec()], 10_000, 15_500, 6);
        let times: Vec<_> = found.iter().map(|(to, ..)| *to).collect();
        assert_eq!(times, [11_300, 12_020, 13_499, 14_000, 15_007]);
        assert!(found.iter().all(|(.., count)| *count == 10));
        assert_eq!(found.iter().map(|(_, ms, _)| ms).sum::<u64>(), 5007);
    }

    #[test]
    fn a_gap_has_no_points_and_a_rest_has_them() {
        let busy = |from: u64, to: u64| (from..to).map(|n| sample(1000 * n, n)).collect::<Vec<_>>();
        let found = points(&[busy(0, 5), busy(60, 63)], 0, 70_000, 70);
        let times: Vec<_> = found.iter().map(|(to, ..)| to / 1000).collect();
        assert_eq!(times, [1, 2, 3, 4, 61, 62]);
        assert!(found.iter().all(|(_, ms, count)| (*ms, *count) == (1000, 1)), "the gap is in no rate");
        // The subject rests from second 4 to second 60, as one chunk says.
        let rests = [busy(0, 5), vec![sample(60_000, 4), sample(61_000, 9)]].concat();
        let found = points(&[rests], 0, 61_000, 61);
        assert_eq!(found.len(), 61);
        assert_eq!(found.iter().map(|(_, ms, _)| ms).sum::<u64>(), 61_000);
        assert_eq!((found[30].2, found.last().unwrap().2), (0, 5));
        // Of two processes nobody knows whether the subject rested between them.
        assert_eq!(points(&[busy(0, 5), vec![sample(60_000, 4)]], 0, 61_000, 61).len(), 4);
    }

    #[test]
    fn steps_grow_with_the_period_and_stay_in_place() {
        let samples: Vec<_> = (0..1000).map(|n| sample(1000 * n, 7 * n)).collect();
        let all = points(std::slice::from_ref(&samples), 0, 999_000, 100);
        assert_eq!(Grid::new(0, 999_000, USUAL[0], 100, 0).step, 10_000);
        assert_eq!(all[3], (40_000, 10_000, 70));
        let later = points(&[samples], 3000, 1_002_000, 100);
        assert_eq!(later[3], all[3], "a chart that is drawn again shows the same");
        assert!(all.len() <= 101 && later.len() <= 101);
        assert_eq!(Grid::new(0, 0, USUAL[2], 0, 0).step, 300_000, "no division by zero");
    }
}
