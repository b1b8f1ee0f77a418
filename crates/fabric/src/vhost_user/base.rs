//! A ring's position as `SET_VRING_BASE` and `GET_VRING_BASE` have it: one number for a split ring, two for a packed one.

use taut_virtq::features::RING_PACKED;

/// Where a ring with these features starts. Of a packed ring's two positions the available one (bits 0–14, wrap counter in
/// 15) counts: what was taken and not returned is not known to anybody here, and some front ends leave the used one zero.
pub fn position(base: u32, features: u64) -> Option<u16> {
    if features & RING_PACKED == 0 { u16::try_from(base).ok() } else { Some(base as u16) }
}

/// The answer for a ring that stopped at this position. A packed ring's used position (bits 16–30, wrap counter in 31) is
/// the same as its available one: what was taken and not returned is taken again.
pub fn base(position: u16, features: u64) -> u32 {
    let position = u32::from(position);
    if features & RING_PACKED == 0 { position } else { position | position << 16 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packed_ring_has_two_positions() {
        assert_eq!((position(0xffff, 0), position(0x1_0000, 0)), (Some(0xffff), None));
        assert_eq!(base(0xffff, 0), 0xffff);
        assert_eq!(position(0x8000, RING_PACKED), Some(0x8000), "some front ends begin with only one half");
        assert_eq!(base(0x8005, RING_PACKED), 0x8005_8005);
        assert_eq!(position(0x8005_8005, RING_PACKED), Some(0x8005));
    }
}
