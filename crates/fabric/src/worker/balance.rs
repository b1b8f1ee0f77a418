//! Which source a busy worker gives to another.
//!
//! The busiest gives one source to the least busy, if that narrows the distance between them by a margin. The larger of the
//! two loads gets smaller with every move, by half the margin at least, so moves come to an end while loads stay as they
//! are; and loads that change by less than the margin cause none.

use std::time::Duration;

/// Time between two moves: both workers are measured anew.
pub(super) const PAUSE: Duration = Duration::from_millis(250);
/// In thousandths of a worker's time.
const MARGIN: u32 = 200;

/// The source that worker `own` is to give away, and to whom. Loads are in thousandths of a worker's time: of all
/// workers, and of `own`'s sources, each with its number.
pub(super) fn choose(own: usize, workers: &[u32], sources: &[(u32, u32)]) -> Option<(u32, usize)> {
    let busiest = workers.iter().max()?;
    let (to, least) = workers.iter().enumerate().min_by_key(|&(_, load)| load)?;
    // A worker that is about to be dismissed is not among them.
    if workers.get(own)? < busiest || to == own {
        return None;
    }
    let distance = busiest - least;
    // After the move of a load l the distance is |distance − 2 l|, and the larger load less by min(l, distance − l).
    let gain = |load: u32| load.min(distance.saturating_sub(load));
    let (number, load) = *sources.iter().max_by_key(|&&(_, load)| gain(load))?;
    (gain(load) >= MARGIN / 2).then_some((number, to))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_busiest_gives_what_narrows_the_distance_most_to_the_least_busy() {
        let sources = [(4, 100), (5, 450), (6, 450)];
        assert_eq!(choose(0, &[1000, 300, 0], &sources), Some((6, 2)));
        assert_eq!(choose(1, &[1000, 300, 0], &sources), None, "it is not the busiest");
        assert_eq!(choose(0, &[1000, 600, 500], &sources), Some((4, 2)));
    }

    #[test]
    fn nothing_moves_when_that_would_not_help() {
        assert_eq!(choose(0, &[1000], &[(0, 500), (1, 500)]), None, "there is nobody else");
        assert_eq!(choose(0, &[1000, 0], &[(0, 1000), (1, 0)]), None, "the other would be as busy");
        assert_eq!(choose(0, &[1000, 900], &[(0, 50), (1, 950)]), None, "too little");
        assert_eq!(choose(0, &[1000, 0], &[]), None);
        assert_eq!(choose(2, &[0, 0], &[(0, 900), (1, 90)]), None, "it has been dismissed");
        assert_eq!(choose(0, &[0, 0], &[(0, 0)]), None);
    }

    proptest! {
        /// Constant loads, spread in any way: every move makes the larger of two loads smaller by half the margin, and
        /// moves come to an end.
        #[test]
        fn moves_of_constant_loads_help_and_end(
            loads in prop::collection::vec((0_u32..300, 0_usize..4), 0..20),
        ) {
            let mut at: Vec<usize> = loads.iter().map(|&(_, worker)| worker).collect();
            let sums = |at: &[usize]| {
                let mut sums = [0_u32; 4];
                for (&(load, _), &worker) in loads.iter().zip(at) {
                    sums[worker] += load;
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
                prop_assert!(after[from].max(after[to]) + MARGIN / 2 <= before[from]);
                prop_assert!(square(after) < square(before));
                moves += 1;
                prop_assert!(moves <= 20 * 4, "no end");
            }
        }
    }
}
