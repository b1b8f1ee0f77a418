//! Repeatable random numbers.

/// A repeatable sequence of pseudo-random numbers (Knuth's linear congruence for 64 bits).
#[derive(Debug, Clone)]
pub(in super::super) struct Random(u64);

impl Random {
    /// Begins the sequence of a seed.
    pub(in super::super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as f64 / f64::from(1_u32 << 31)
    }

    /// Returns a number from 0 on and below `end`.
    pub(in super::super) fn below(&mut self, end: f64) -> f64 {
        self.next() * end
    }

    /// Puts a list into a random order.
    pub(in super::super) fn shuffle<T>(&mut self, list: &mut [T]) {
        for at in (1..list.len()).rev() {
            let other = self.below((at + 1) as f64) as usize;
            list.swap(at, other.min(at));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_has_everything_once() {
        let mut list: Vec<u32> = (0..100).collect();
        Random::new(1).shuffle(&mut list);
        assert_ne!(list, (0..100).collect::<Vec<_>>());
        list.sort_unstable();
        assert_eq!(list, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn numbers_fill_their_range() {
        let mut random = Random::new(7);
        let numbers: Vec<f64> = (0..1000).map(|_| random.below(30.0)).collect();
        assert!(numbers.iter().all(|number| (0.0..30.0).contains(number)));
        assert!(numbers.iter().any(|number| *number < 1.0) && numbers.iter().any(|number| *number > 29.0));
    }
}
