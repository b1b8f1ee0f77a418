//! The totals of a subject at one point in time, or their growth between two.

/// Counters by their number, without those that are zero.
///
/// The owner of the history gives the numbers. They are stored, so a number keeps its meaning.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Values(Vec<(u8, u64)>);

impl Clone for Values {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }

    fn clone_from(&mut self, other: &Self) {
        // Keeps the memory, which the derived implementation does not.
        self.0.clone_from(&other.0);
    }
}

impl Values {
    /// Returns these counters. Of two with the same number, the later one counts.
    pub fn new(counters: impl IntoIterator<Item = (u8, u64)>) -> Self {
        let mut values = Self::default();
        counters.into_iter().for_each(|(number, value)| values.set(number, value));
        values
    }

    /// Returns a counter.
    pub fn get(&self, number: u8) -> u64 {
        self.place(number).map_or(0, |at| self.0[at].1)
    }

    /// Sets a counter.
    pub fn set(&mut self, number: u8, value: u64) {
        // Mostly they come in their order.
        if value > 0 && self.0.last().is_none_or(|(last, _)| *last < number) {
            self.0.push((number, value));
            return;
        }
        match (self.place(number), value) {
            (Ok(at), 0) => drop(self.0.remove(at)),
            (Ok(at), _) => self.0[at].1 = value,
            (Err(_), 0) => {}
            (Err(at), _) => self.0.insert(at, (number, value)),
        }
    }

    /// Returns the counters that are not zero, in the order of their numbers.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (u8, u64)> {
        self.0.iter().copied()
    }

    /// Returns the growth of each counter since `before`; none for a counter that went back.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self(self.growth_since(before).collect())
    }

    /// Returns the counters that have grown since `before`, and by how much, in the order of their
    /// numbers.
    pub(crate) fn growth_since(&self, before: &Self) -> impl Iterator<Item = (u8, u64)> {
        let grown = |(number, value): (u8, u64)| (number, value.saturating_sub(before.get(number)));
        self.iter().map(grown).filter(|(_, value)| *value > 0)
    }

    /// Returns a counter per second, if it has grown within so many milliseconds.
    pub fn per_second(&self, number: u8, ms: u64) -> f64 {
        if ms == 0 { 0.0 } else { self.get(number) as f64 * 1000.0 / ms as f64 }
    }

    /// Adds a growth to the counters.
    pub fn grow(&mut self, growth: &Self) {
        growth.iter().for_each(|(number, value)| self.grow_one(number, value));
    }

    /// Adds a growth to one counter.
    pub fn grow_one(&mut self, number: u8, by: u64) {
        self.set(number, self.get(number).saturating_add(by));
    }

    fn place(&self, number: u8) -> Result<usize, usize> {
        self.0.binary_search_by_key(&number, |(number, _)| *number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_in_order_and_zeros_are_left_out() {
        let mut values = Values::new([(7, 1), (3, 2), (9, 0), (7, 5)]);
        assert_eq!(values.iter().collect::<Vec<_>>(), [(3, 2), (7, 5)]);
        assert_eq!([values.get(7), values.get(9)], [5, 0]);
        values.set(3, 0);
        assert_eq!(values, Values::new([(7, 5)]));
    }

    #[test]
    fn growth_is_never_negative() {
        let before = Values::new([(1, 10), (2, 10), (3, 10)]);
        let now = Values::new([(1, 15), (2, 4), (4, 1)]);
        let mut growth = now.since(&before);
        assert_eq!(growth, Values::new([(1, 5), (4, 1)]));
        growth.grow(&Values::new([(3, 2), (4, 2)]));
        assert_eq!(growth, Values::new([(1, 5), (3, 2), (4, 3)]));
    }
}
