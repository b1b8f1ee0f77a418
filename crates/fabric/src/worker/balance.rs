//! Load balancing: the source that a busy worker gives to another.
//!
//! The busiest worker gives one source to the least busy one, if that narrows the distance between
//! them by a margin. Each move reduces the larger of the two loads by at least half the margin.
//! With constant loads, moves therefore come to an end, and changes of load below the margin cause
//! none.

use std::time::Duration;

use crate::wake::mailbox::WorkerIdx;
use crate::wake::timers::SourceIdx;

/// Shortest time between two moves, so that the loads of both workers are measured in between.
pub(super) const PAUSE: Duration = Duration::from_millis(250);
/// Smallest worthwhile improvement, in thousandths of a worker's time.
const MARGIN: u32 = 200;

/// Chooses the source that worker `own` gives away, and its new owner.
///
/// `workers` are the loads of all workers, and `sources` those of `own`'s sources, in thousandths
/// of a worker's time.
pub(super) fn choose(
    own: WorkerIdx,
    workers: &[u32],
    sources: &[(SourceIdx, u32)],
) -> Option<(SourceIdx, WorkerIdx)> {
    let busiest = workers.iter().max()?;
    let (to, least) = WorkerIdx::all(workers.len()).zip(workers).min_by_key(|&(_, load)| load)?;
    // A worker that is being dismissed is not in the list.
    if workers.get(own.index())? < busiest || to == own {
        return None;
    }
    let distance = busiest - least;
    // Moving a load l reduces the larger load by min(l, distance − l).
    let gain = |load: u32| load.min(distance.saturating_sub(load));
    let (source, load) = *sources.iter().max_by_key(|&&(_, load)| gain(load))?;
    (gain(load) >= MARGIN / 2).then_some((source, to))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn choose(own: u8, workers: &[u32], sources: &[(u32, u32)]) -> Option<(u32, u8)> {
        let sources: Vec<_> = sources.iter().map(|&(source, load)| (SourceIdx(source), load)).collect();
        super::choose(WorkerIdx(own), workers, &sources).map(|(source, to)| (source.0, to.0))
    }

    #[test]
    fn the_busiest_worker_gives_the_source_that_narrows_the_distance_most() {
        let sources = [(4, 100), (5, 450), (6, 450)];
        assert_eq!(choose(0, &[1000, 300, 0], &sources), Some((6, 2)));
        assert_eq!(choose(1, &[1000, 300, 0], &sources), None, "the worker is not the busiest");
        assert_eq!(choose(0, &[1000, 600, 500], &sources), Some((4, 2)));
    }

    #[test]
    fn no_source_moves_when_that_would_not_help() {
        assert_eq!(choose(0, &[1000], &[(0, 500), (1, 500)]), None, "there is no other worker");
        assert_eq!(choose(0, &[1000, 0], &[(0, 1000), (1, 0)]), None, "the other worker would be as busy");
        assert_eq!(choose(0, &[1000, 900], &[(0, 50), (1, 950)]), None, "the gain is below the margin");
        assert_eq!(choose(0, &[1000, 0], &[]), None);
        assert_eq!(choose(2, &[0, 0], &[(0, 900), (1, 90)]), None, "the worker has been dismissed");
        assert_eq!(choose(0, &[0, 0], &[(0, 0)]), None);
    }

    proptest! {
        /// With constant loads in any distribution, every move reduces the larger of two loads by
        /// half the margin, and moves come to an end.
        #[test]
        fn moves_of_constant_loads_help_and_end(
            loads in prop::collection::vec((0_u32..300, 0_u8..4), 0..20),
        ) {
            let mut at: Vec<u8> = loads.iter().map(|&(_, worker)| worker).collect();
            let sums = |at: &[u8]| {
                let mut sums = [0_u32; 4];
                for (&(load, _), &worker) in loads.iter().zip(at) {
                    sums[usize::from(worker)] += load;
                }
                sums
            };
            let square = |sums: [u32; 4]| sums.iter().map(|&load| u64::from(load).pow(2)).sum::<u64>();
            let mut moves = 0;
            loop {
                let before = sums(&at);
                let chosen = (0..4).find_map(|own| {
                    let mine = (0..).zip(&loads).zip(&at).filter(|&(_, &worker)| worker == own);
                    let mine: Vec<_> = mine.map(|((number, &(load, _)), _)| (number, load)).collect();
                    choose(own, &before, &mine).map(|(number, to)| (number, own, to))
                });
                let Some((number, from, to)) = chosen else { break };
                prop_assert_eq!(at[number as usize], from);
                at[number as usize] = to;
                let after = sums(&at);
                prop_assert!(after[usize::from(from)].max(after[usize::from(to)]) + MARGIN / 2 <= before[usize::from(from)]);
                prop_assert!(square(after) < square(before));
                moves += 1;
                prop_assert!(moves <= 20 * 4, "no end");
            }
        }
    }
}
