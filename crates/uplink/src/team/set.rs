//! Numbers of uplinks, and sets of them.

use std::fmt;

/// Most uplinks of a vSwitch: a [`Set`] has a bit for each.
pub const MOST_UPLINKS: u8 = 32;

/// An uplink of a vSwitch, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uplink(u8);

impl Uplink {
    /// Returns the uplink with this number, or `None` from [`MOST_UPLINKS`] on.
    pub const fn new(number: u8) -> Option<Self> {
        if number < MOST_UPLINKS { Some(Self(number)) } else { None }
    }

    /// Returns its number.
    pub const fn number(self) -> u8 {
        self.0
    }
}

/// A set of uplinks.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Set(u32);

impl Set {
    /// Returns whether there is none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the number of uplinks.
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Returns whether the uplink is one of them.
    pub const fn contains(self, uplink: Uplink) -> bool {
        self.0 >> uplink.0 & 1 == 1
    }

    /// Adds an uplink. Returns whether it is new.
    pub fn insert(&mut self, uplink: Uplink) -> bool {
        let is_new = !self.contains(uplink);
        self.0 |= 1 << uplink.0;
        is_new
    }

    /// Takes an uplink out.
    pub fn remove(&mut self, uplink: Uplink) {
        self.0 &= !(1 << uplink.0);
    }

    /// Returns the uplinks by number.
    pub fn iter(self) -> impl Iterator<Item = Uplink> {
        (0..MOST_UPLINKS).map(Uplink).filter(move |uplink| self.contains(*uplink))
    }
}

impl FromIterator<Uplink> for Set {
    fn from_iter<I: IntoIterator<Item = Uplink>>(uplinks: I) -> Self {
        let mut set = Self::default();
        for uplink in uplinks {
            set.insert(uplink);
        }
        set
    }
}

impl fmt::Debug for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(Uplink::number)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_the_uplinks_that_were_put_into_it() {
        let [first, last] = [0, 31].map(|number| Uplink::new(number).unwrap());
        assert_eq!(Uplink::new(32), None);
        let mut set: Set = [last, first, last].into_iter().collect();
        assert_eq!((set.len(), set.iter().collect::<Vec<_>>()), (2, vec![first, last]));
        set.remove(first);
        assert_eq!((format!("{set:?}").as_str(), set.is_empty()), ("{31}", false));
    }
}
