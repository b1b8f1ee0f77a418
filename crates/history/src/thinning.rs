//! Which samples are kept for how long.

/// Most samples of a chunk of any density.
pub(crate) const MAX_SAMPLES: usize = 64;

/// Samples of one density.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Density {
    /// Time between two samples in ms.
    pub every: u64,
    /// Time for which they are kept, in ms.
    pub kept: u64,
    /// Most samples of a chunk. Chunks that grow are in memory, so they are shorter where samples
    /// are dense, and soon make room for the next one.
    pub chunk: usize,
}

/// Number of densities.
pub const DENSITIES: usize = 3;

/// From the densest to the thinnest: a second for an hour, 20 s for a day, 5 minutes for 30 days.
/// Each is kept for longer than the one before.
pub const USUAL: [Density; DENSITIES] = [
    Density { every: 1000, kept: 3_600_000, chunk: 32 },
    Density { every: 20_000, kept: 24 * 3_600_000, chunk: MAX_SAMPLES },
    Density { every: 300_000, kept: 30 * 24 * 3_600_000, chunk: MAX_SAMPLES },
];

/// Time in ms by which a sample may come too early for its density: its owner is a bit late or
/// early each time.
pub(crate) const EARLY: u64 = 500;

impl Density {
    /// Returns the position from which on a sample is one of this density, if the last one is at
    /// the position `last`.
    pub(crate) fn due(self, last: u64) -> u64 {
        last.saturating_add(self.every).saturating_sub(EARLY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_become_thinner() {
        let taken = |density: Density| {
            let mut due = 0;
            (0..3600_u64)
                .filter(|second| {
                    // The owner is late by up to 300 ms.
                    let at = 1_000_499 + 1000 * second + (second * 7919) % 300;
                    let takes = at >= due;
                    due = if takes { density.due(at) } else { due };
                    takes
                })
                .count()
        };
        assert_eq!(taken(USUAL[0]), 3600);
        assert!((180..=181).contains(&taken(USUAL[1])));
        assert!((12..=13).contains(&taken(USUAL[2])));
    }
}
