//! Admission of reservations: those that an uplink can keep.

use super::rules::Rate;

/// Part of the slowest uplink that may be reserved, in percent, as on ESX.
pub const RESERVABLE_PERCENT: u64 = 75;

/// Why reservations are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "reservations of {asked} bit/s are more than the {most} bit/s that can be reserved: \
     {RESERVABLE_PERCENT} % of the slowest uplink's {slowest} bit/s"
)]
pub struct TooMuch {
    /// Sum of the reservations in bit/s.
    pub asked: u64,
    /// Largest sum in bit/s.
    pub most: u64,
    /// Speed of the slowest uplink in bit/s.
    pub slowest: u64,
}

/// Checks that uplinks, of which the slowest has this speed, can keep all of the reservations.
pub fn admit(reservations: impl IntoIterator<Item = Rate>, slowest: Rate) -> Result<(), TooMuch> {
    let each = reservations.into_iter().map(Rate::bits_per_s);
    let asked = each.fold(0, u64::saturating_add);
    let slowest = slowest.bits_per_s();
    // In 128 bits: the product of a speed of 64 bits and a percentage.
    let most = (u128::from(slowest) * u128::from(RESERVABLE_PERCENT) / 100) as u64;
    if asked > most { Err(TooMuch { asked, most, slowest }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(bits: u64) -> Rate {
        Rate::new(bits).unwrap()
    }

    #[test]
    fn three_quarters_of_the_slowest_uplink_can_be_reserved() {
        let slowest = rate(1_000_000_000);
        assert_eq!(admit([], slowest), Ok(()));
        assert_eq!(admit([rate(500_000_000), rate(250_000_000)], slowest), Ok(()));
        let refused = admit([rate(500_000_000), rate(250_001_000)], slowest).unwrap_err();
        let text = "reservations of 750001000 bit/s are more than the 750000000 bit/s that can be \
                    reserved: 75 % of the slowest uplink's 1000000000 bit/s";
        assert_eq!(refused.to_string(), text);
    }

    #[test]
    fn sums_beyond_the_range_are_too_much() {
        assert!(admit([rate(u64::MAX), rate(u64::MAX)], rate(u64::MAX)).is_err());
    }
}
