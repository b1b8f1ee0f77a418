//! One entry's value in a single atomic word.

use taut_api::fabric::PortId;

use crate::switch::mac_table::Key;

/// The state of an address: the port (16 bits, plus one), a check of the address (16 bits), and the
/// second of its last frame (32 bits).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Value(pub(super) u64);

impl Value {
    pub(super) const FREE: Self = Self(0);
    /// Another thread is writing the entry.
    pub(super) const BUSY: Self = Self(u64::MAX);

    pub(super) fn new(port: PortId, key: Key, second: u32) -> Self {
        Self((u64::from(port.0) + 1) << 48 | Self::check(key) << 32 | u64::from(second))
    }

    /// Bits of the hash other than those that choose the place.
    fn check(key: Key) -> u64 {
        key.hash() >> 16 & 0xffff
    }

    /// Tells whether the value belongs to this address.
    pub(super) fn is_of(self, key: Key) -> bool {
        self != Self::FREE && self != Self::BUSY && self.0 >> 32 & 0xffff == Self::check(key)
    }

    /// The port; `None` if the entry is free or busy.
    pub(super) fn port(self) -> Option<PortId> {
        if self == Self::BUSY { None } else { ((self.0 >> 48) as u16).checked_sub(1).map(PortId) }
    }

    /// The second of the address's last frame.
    pub(super) const fn second(self) -> u32 {
        self.0 as u32
    }
}
