//! A reading of a subject's counters.

/// The counters that could be read, by their number, each of them once.
///
/// A counter that is zero has begun again, if it had another value before. A counter that is absent
/// could not be read: it keeps its last known value until a later reading has it. So the owner of
/// the history leaves out each counter that cannot be read, and no counter that is zero.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reading(Vec<(u8, u64)>);

impl Reading {
    /// Returns a reading of these counters.
    pub fn new(counters: impl IntoIterator<Item = (u8, u64)>) -> Self {
        Self(counters.into_iter().collect())
    }

    /// Returns the counters that could be read.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u8, u64)> {
        self.0.iter().copied()
    }
}

impl Extend<(u8, u64)> for Reading {
    fn extend<T: IntoIterator<Item = (u8, u64)>>(&mut self, counters: T) {
        self.0.extend(counters);
    }
}
