//! Points on a line of real or virtual time, finer than a nanosecond.

use super::rules::{Rate, Shares};

/// Fractional bits. A byte at 400 Gbit/s takes 0.02 ns.
const FRACTION: u32 = 32;

/// A point on a line, in units of 2⁻³². On lines of time, one is a nanosecond. On lines of
/// shares, one is a byte that a node with one share sends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Tag(u128);

/// Length of a byte on a line, in units of 2⁻³².
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PerByte(u64);

impl Tag {
    /// Returns the tag of this point in time.
    pub(super) fn at(ns: u64) -> Self {
        Self(u128::from(ns) << FRACTION)
    }

    /// Returns the whole part. Anything after the range of 64 bits is its end.
    pub(super) fn ns(self) -> u64 {
        u64::try_from(self.0 >> FRACTION).unwrap_or(u64::MAX)
    }

    /// Returns the first whole number that is not before the tag.
    pub(super) fn reached(self) -> u64 {
        Self(self.0.saturating_add((1 << FRACTION) - 1)).ns()
    }

    /// Returns the tag so many nanoseconds before.
    pub(super) fn before(self, ns: u64) -> Self {
        Self(self.0.saturating_sub(Self::at(ns).0))
    }

    /// Returns the tag so many nanoseconds later.
    pub(super) fn later(self, ns: u64) -> Self {
        Self(self.0 + Self::at(ns).0)
    }

    /// Returns the tag before these bytes.
    pub(super) fn less(self, bytes: u32, each: PerByte) -> Self {
        Self(self.0.saturating_sub(u128::from(bytes) * u128::from(each.0)))
    }

    /// Returns the tag after these bytes.
    pub(super) fn after(self, bytes: u32, each: PerByte) -> Self {
        Self(self.0 + u128::from(bytes) * u128::from(each.0))
    }
}

impl PerByte {
    /// Returns the time that a byte takes at a rate.
    pub(super) fn at(rate: Rate) -> Self {
        let each = (8_000_000_000_u128 << FRACTION) / u128::from(rate.bits_per_s());
        Self(u64::try_from(each).unwrap_or(u64::MAX))
    }

    /// Returns the length of a byte on the line of shares.
    pub(super) fn of(shares: Shares) -> Self {
        Self((1 << FRACTION) / u64::from(shares.number()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_nanosecond_add_up() {
        let each = PerByte::at(Rate::new(100_000_000_000).unwrap());
        let mut tag = Tag::at(7);
        for _ in 0..1_000_000 {
            tag = tag.after(64, each);
        }
        // 64 bytes take 5.12 ns.
        assert!((5_120_006..=5_120_007).contains(&tag.ns()), "{tag:?}");
        assert_eq!([tag.reached() - tag.ns(), Tag::at(7).reached()], [1, 7]);
    }

    #[test]
    fn a_byte_of_many_shares_is_short() {
        let [one, all] = [1, 100].map(|number| PerByte::of(Shares::new(number).unwrap()));
        assert_eq!(Tag::at(0).after(7, one).ns(), 7);
        assert_eq!(Tag::at(0).after(700, all).reached(), 7);
    }

    #[test]
    fn the_slowest_rate_does_not_overflow() {
        let each = PerByte::at(Rate::new(Rate::LEAST).unwrap());
        assert_eq!(Tag::at(0).after(1, each).ns(), 8_000_000);
        assert_eq!(Tag(u128::MAX >> 1).ns(), u64::MAX);
    }
}
