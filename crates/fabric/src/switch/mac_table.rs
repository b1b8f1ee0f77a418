//! Addresses of ports: an open-addressing hash table that is built once and then only read.

use super::index::MemberIdx;
use crate::net::ethernet::MacKey;

/// An address in a VLAN as one word: the VLAN's twelve bits above the address's 48.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(u64);

impl Key {
    /// The address in one VLAN.
    #[inline]
    pub const fn new(vlan: u16, mac: MacKey) -> Self {
        Self(mac.0 | (vlan as u64) << 48)
    }

    /// The address in all VLANs of its port. Its VLAN bits are 4095, which no VLAN has.
    #[inline]
    pub const fn everywhere(mac: MacKey) -> Self {
        Self::new(0x0fff, mac)
    }

    /// The key whose [`Self::word`] this is.
    pub(super) const fn from_word(word: u64) -> Self {
        Self(word)
    }

    /// The key as a number; never 0 for an address that a network card can have.
    #[inline]
    pub const fn word(self) -> u64 {
        self.0
    }

    /// A hash that spreads consecutive addresses, and one address in many VLANs. Its upper bits are
    /// the best.
    #[inline]
    pub const fn hash(self) -> u64 {
        // 2^64 divided by the golden ratio.
        const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
        (self.0 ^ self.0 >> 32).wrapping_mul(SPREAD)
    }
}

/// The addresses of one segment that ports have by configuration or by their drivers.
///
/// The table is at most half full, so a look-up takes a step or two, also for unknown addresses.
#[derive(Debug, Default)]
pub struct MacTable {
    /// Power-of-two number of slots; empty ones hold [`EMPTY`].
    slots: Vec<(Key, MemberIdx)>,
    shift: u32,
}

/// A free slot: no network card has the all-zero address.
const EMPTY: Key = Key(0);

impl MacTable {
    /// Builds the table. Addresses must be unicast and different.
    pub fn new(entries: &[(Key, MemberIdx)]) -> Self {
        let size = (entries.len() * 2).next_power_of_two().max(2);
        let mut table = Self { slots: vec![(EMPTY, MemberIdx(0)); size], shift: 64 - size.trailing_zeros() };
        for &(key, member) in entries {
            let mut at = table.start(key);
            while table.slots[at].0 != EMPTY {
                at = (at + 1) & (size - 1);
            }
            table.slots[at] = (key, member);
        }
        table
    }

    /// The slot at which the search for a key begins.
    #[inline]
    fn start(&self, key: Key) -> usize {
        (key.hash() >> self.shift) as usize
    }

    /// The member with this address.
    #[inline]
    pub fn find(&self, key: Key) -> Option<MemberIdx> {
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
    fn an_empty_table_finds_nothing() {
        assert_eq!(MacTable::default().find(Key(2)), None);
        assert_eq!(MacTable::new(&[]).find(Key(2)), None);
        assert_eq!(MacTable::new(&[(Key(2), MemberIdx(0))]).find(EMPTY), None);
    }

    proptest! {
        #[test]
        fn a_table_finds_exactly_the_addresses_that_it_was_built_from(
            known in prop::collection::hash_map(2_u64..400, any::<u32>(), 0..200),
            strangers in prop::collection::vec(1_u64..800, 50),
        ) {
            let entries: Vec<_> = known.iter().map(|(&mac, &member)| (Key(mac), MemberIdx(member))).collect();
            let table = MacTable::new(&entries);
            let wanted: HashMap<u64, u32> = known;
            for mac in wanted.keys().copied().chain(strangers) {
                prop_assert_eq!(table.find(Key(mac)), wanted.get(&mac).map(|&member| MemberIdx(member)));
            }
        }
    }
}
