//! Who has which address: an open-addressing table that is built once and then only read.

use super::ethernet::MacKey;

/// Addresses of one segment. At most half full, so that a look-up ends after a step or two, also for strangers.
#[derive(Debug, Default)]
pub struct MacTable {
    /// Power-of-two number of slots; empty ones hold [`EMPTY`].
    slots: Vec<(MacKey, u32)>,
    shift: u32,
}

/// No station has the all-zero address: a free slot.
const EMPTY: MacKey = MacKey(0);
/// 2^64 divided by the golden ratio: spreads consecutive addresses.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

impl MacTable {
    /// Builds the table of `entries`: address, and member index. Addresses must be unicast and differ.
    pub fn new(entries: &[(MacKey, u32)]) -> Self {
        let size = (entries.len() * 2).next_power_of_two().max(2);
        let mut table = Self { slots: vec![(EMPTY, 0); size], shift: 64 - size.trailing_zeros() };
        for &(mac, member) in entries {
            let mut at = table.start(mac);
            while table.slots[at].0 != EMPTY {
                at = (at + 1) & (size - 1);
            }
            table.slots[at] = (mac, member);
        }
        table
    }

    #[inline]
    fn start(&self, mac: MacKey) -> usize {
        (mac.0.wrapping_mul(SPREAD) >> self.shift) as usize
    }

    /// The member with this address.
    #[inline]
    pub fn find(&self, mac: MacKey) -> Option<u32> {
        let mask = self.slots.len().wrapping_sub(1);
        let mut at = self.start(mac) & mask;
        loop {
            let (key, member) = *self.slots.get(at)?;
            if key == mac && mac != EMPTY {
                return Some(member);
            }
            if key == EMPTY {
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
        assert_eq!(MacTable::default().find(MacKey(2)), None);
        assert_eq!(MacTable::new(&[]).find(MacKey(2)), None);
        assert_eq!(MacTable::new(&[(MacKey(2), 0)]).find(EMPTY), None);
    }

    proptest! {
        #[test]
        fn finds_all_it_was_given_and_nothing_else(
            known in prop::collection::hash_map(2_u64..400, any::<u32>(), 0..200),
            strangers in prop::collection::vec(1_u64..800, 50),
        ) {
            let entries: Vec<_> = known.iter().map(|(&mac, &member)| (MacKey(mac), member)).collect();
            let table = MacTable::new(&entries);
            let wanted: HashMap<u64, u32> = known;
            for mac in wanted.keys().copied().chain(strangers) {
                prop_assert_eq!(table.find(MacKey(mac)), wanted.get(&mac).copied());
            }
        }
    }
}
