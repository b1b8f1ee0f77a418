//! Settings of an administrator: classes of traffic, shares, rates.

use std::num::{NonZeroU8, NonZeroU64};

/// Class of traffic, in ESX's order and with ESX's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Class {
    /// `management`
    Management,
    /// `faulttolerance`
    FaultTolerance,
    /// `nfs`
    Nfs,
    /// `iscsi`
    Iscsi,
    /// `vsan`
    Vsan,
    /// `vmotion`
    Vmotion,
    /// `hbr`: replication of VMs.
    Replication,
    /// `vdp`: backup.
    Backup,
    /// `virtualmachine`
    VirtualMachine,
}

impl Class {
    /// All classes. The place of each is its number.
    pub const ALL: [Self; 9] = [
        Self::Management,
        Self::FaultTolerance,
        Self::Nfs,
        Self::Iscsi,
        Self::Vsan,
        Self::Vmotion,
        Self::Replication,
        Self::Backup,
        Self::VirtualMachine,
    ];

    /// Returns ESX's rules for a class that nobody has set: `high` shares for VMs, `normal` ones
    /// for the others, no limit, no reservation.
    pub const fn defaults(self) -> Rules {
        let shares = if matches!(self, Self::VirtualMachine) { Shares::HIGH } else { Shares::NORMAL };
        Rules { shares, limit: None, reservation: None }
    }
}

/// Weight of a class or port while an uplink is contended, from 1 to 100.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shares(NonZeroU8);

impl Shares {
    /// ESX's `low`.
    pub const LOW: Self = Self(NonZeroU8::new(25).unwrap());
    /// ESX's `normal`.
    pub const NORMAL: Self = Self(NonZeroU8::new(50).unwrap());
    /// ESX's `high`, the most.
    pub const HIGH: Self = Self(NonZeroU8::new(100).unwrap());

    /// Returns so many shares, or `None` if the number is not from 1 to 100.
    pub fn new(number: u8) -> Option<Self> {
        NonZeroU8::new(number).map(Self).filter(|shares| *shares <= Self::HIGH)
    }

    /// Returns the number of shares.
    pub const fn number(self) -> u8 {
        self.0.get()
    }
}

/// A rate on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(NonZeroU64);

impl Rate {
    /// Lowest rate, 1 kbit/s, as for shaping.
    pub const LEAST: u64 = 1000;

    /// Returns a rate of so many bits a second, or `None` if it is below [`Rate::LEAST`].
    pub fn new(bits_per_s: u64) -> Option<Self> {
        NonZeroU64::new(bits_per_s).filter(|bits| bits.get() >= Self::LEAST).map(Self)
    }

    /// Returns the bits a second.
    pub const fn bits_per_s(self) -> u64 {
        self.0.get()
    }
}

/// Settings of a class or port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Weight in dividing what reservations leave.
    pub shares: Shares,
    /// Highest rate at which it may send.
    pub limit: Option<Rate>,
    /// Rate at which it may send whatever others do. A limit below it wins.
    pub reservation: Option<Rate>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_found_by_its_number() {
        for (number, class) in Class::ALL.into_iter().enumerate() {
            assert_eq!(class as usize, number);
        }
    }

    #[test]
    fn shares_and_rates_have_ranges() {
        assert_eq!([0, 1, 100, 101].map(|number| Shares::new(number).is_some()), [false, true, true, false]);
        assert_eq!([0, 999, 1000].map(|bits| Rate::new(bits).is_some()), [false, false, true]);
    }
}
