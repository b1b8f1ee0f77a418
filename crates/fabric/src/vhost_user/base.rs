//! Ring positions as `SET_VRING_BASE` and `GET_VRING_BASE` carry them.
//!
//! A split ring has one position. A packed ring has two, the available one in bits 0–14 with its
//! wrap counter in bit 15, and the used one in bits 16–30 with its wrap counter in bit 31.

use taut_virtq::features::RING_PACKED;

/// Reads the position at which a ring with these features starts; `None` if it is out of range.
///
/// For a packed ring only the available position counts. The descriptors between both positions are
/// lost with the process that had taken them, and some front ends leave the used position zero.
pub fn position(base: u32, features: u64) -> Option<u16> {
    if features & RING_PACKED == 0 { u16::try_from(base).ok() } else { Some(base as u16) }
}

/// Builds the answer for a ring that stopped at this position.
///
/// Both positions of a packed ring are the same: descriptors that were taken and not returned are
/// taken again.
pub fn base(position: u16, features: u64) -> u32 {
    let position = u32::from(position);
    if features & RING_PACKED == 0 { position } else { position | position << 16 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packed_ring_carries_its_position_twice() {
        assert_eq!((position(0xffff, 0), position(0x1_0000, 0)), (Some(0xffff), None));
        assert_eq!(base(0xffff, 0), 0xffff);
        assert_eq!(position(0x8000, RING_PACKED), Some(0x8000), "some front ends begin with only one half");
        assert_eq!(base(0x8005, RING_PACKED), 0x8005_8005);
        assert_eq!(position(0x8005_8005, RING_PACKED), Some(0x8005));
    }
}
