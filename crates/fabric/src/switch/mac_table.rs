//! Who has which address: an open-addressing table that is built once and then only read.

use crate::net::ethernet::MacKey;

/// An address in a VLAN as one word: the VLAN's twelve bits above the address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(u64);

impl Key {
    /// The address in one VLAN.
    #[inline]
    pub const fn new(vlan: u16, mac: MacKey) -> Self {
        Self(mac.0 | (vlan as u64) << 48)
    }

    /// The address in all VLANs of its port: no VLAN has the number that this is written with.
    #[inline]
    pub const fn everywhere(mac: MacKey) -> Self {
        Self::new(0x0fff, mac)
    }

    /// What [`Self::word`] was.
    pub(super) const fn from_word(word: u64) -> Self {
        Self(word)
    }

    /// As a number; never 0 for an address that a station can have.
    #[inline]
    pub const fn word(self) -> u64 {
        self.0
    }

    /// Spreads consecutive addresses, and one address in many VLANs. The upper bits are the best.
    #[inline]
    pub const fn hash(self) -> u64 {
        // 2^64 divided by the golden ratio.
        const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
        (self.0 ^ self.0 >> 32).wrapping_mul(SPREAD)
    }
}

/// Configured addresses of one segment. At most half full, so that a look-up ends after a step or two, also for strangers.
#[derive(Debug, Default)]
pub struct MacTable {
    /// Power-of-two number of slots; empty ones hold [`EMPTY`].
    slots: Vec<(Key, u32)>,
    shift: u32,
}

/// No station has the all-zero address: a free slot.
const EMPTY: Key = Key(0);

impl MacTable {
    /// Builds the table of `entries`: address, and member index. Addresses must be unicast and differ.
    pub fn new(entries: &[(Key, u32)]) -> Self {
        let size = (entries.len() * 2).next_power_of_two().max(2);
        let mut table = Self { slots: vec![(EMPTY, 0); size], shift: 64 - size.trailing_zeros() };
        for &(key, member) in entries {
            let mut at = table.start(key);
            while table.slots[at].0 != EMPTY {
                at = (at + 1) & (size - 1);
            }
            table.slots[at] = (key, member);
        }
        table
    }

    #[inline]
    fn start(&self, key: Key) -> usize {
        (key.hash() >> self.shift) as usize
    }

    /// The member with this address.
    #[inline]
    pub fn find(&self, key: Key) -> Option<u32> {
        let mask = self.slots.len().wrapping_sub(1);
        let mut at = self.start(key) & mask;
        loop {
            let (found, member) = *self.slots.get(at)?;
            if found == key && key != EMPTY {
                return Some(member);
            }
            if found == EMPTY {
                return None;
            }
            at = (at + 1) & mask;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_empty_table_knows_nobody() {
        assert_eq!(MacTable::default().find(Key(2)), None);
        assert_eq!(MacTable::new(&[]).find(Key(2)), None);
        assert_eq!(MacTable::new(&[(Key(2), 0)]).find(EMPTY), None);
    }

    proptest! {
        #[test]
        fn finds_all_it_was_given_and_nothing_else(
            known in prop::collection::hash_map(2_u64..400, any::<u32>(), 0..200),
            strangers in prop::collection::vec(1_u64..800, 50),
        ) {
            let entries: Vec<_> = known.iter().map(|(&mac, &member)| (Key(mac), member)).collect();
            let table = MacTable::new(&entries);
            let wanted: HashMap<u64, u32> = known;
            for mac in wanted.keys().copied().chain(strangers) {
                prop_assert_eq!(table.find(Key(mac)), wanted.get(&mac).copied());
            }
        }
    }
}
