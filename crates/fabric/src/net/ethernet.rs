//! Ethernet headers: addresses and type, read once from a copy that no guest can change.

use taut_api::MacAddr;
use taut_api::fabric::DropReason;

/// Length in bytes of an Ethernet header.
pub const HEADER: usize = 14;
/// Length in bytes of a VLAN tag.
pub const TAG: usize = 4;
/// Longest frame without a tag: a whole IP packet behind an Ethernet header.
pub const MAX_FRAME: usize = 65535 + HEADER;
/// Longest frame with a tag.
pub const MAX_TAGGED: usize = MAX_FRAME + TAG;

/// EtherType of an IEEE 802.1Q tag, the only kind that the switch supports.
pub const TAG_8021Q: u16 = 0x8100;
/// EtherType of an IEEE 802.1ad service tag.
const TAG_8021AD: u16 = 0x88a8;

/// An Ethernet address as a number, for comparing and hashing: the first octet is the lowest byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MacKey(pub u64);

impl From<MacAddr> for MacKey {
    fn from(mac: MacAddr) -> Self {
        let mut word = [0; 8];
        word[..6].copy_from_slice(&mac.0);
        Self(u64::from_le_bytes(word))
    }
}

impl MacKey {
    /// The six octets of the address.
    pub fn octets(self) -> [u8; 6] {
        let mut octets = [0; 6];
        octets.copy_from_slice(&self.0.to_le_bytes()[..6]);
        octets
    }

    /// Tells whether a network card can have this address: it is unicast and not zero.
    pub const fn is_assignable(self) -> bool {
        self.0 != 0 && !self.is_multicast()
    }

    /// Tells whether this is a group address: broadcast or multicast.
    pub const fn is_multicast(self) -> bool {
        self.0 & 1 == 1
    }

    /// Tells whether this is one of the sixteen addresses that a bridge does not forward
    /// (01:80:c2:00:00:0X; IEEE 802.1Q, table 8-1).
    ///
    /// Spanning tree, pause frames and link aggregation use them between a station and its nearest
    /// bridge.
    pub const fn is_reserved(self) -> bool {
        const FIRST: u64 = u64::from_le_bytes([0x01, 0x80, 0xc2, 0, 0, 0, 0, 0]);
        self.0 & !(0x0f << 40) == FIRST
    }
}

/// Both addresses and the type of a frame as two words, for fast comparison.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MacPair(u64, u64);

impl MacPair {
    /// Reads them from a frame of at least [`HEADER`] bytes.
    #[inline]
    pub fn of<const N: usize>(start: &[u8; N]) -> Self {
        const { assert!(N >= HEADER) };
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&start[at..at + 8]);
            u64::from_le_bytes(word)
        };
        // The words overlap by two bytes.
        Self(word(0), word(6))
    }

    /// The place in a table with `N` entries, a power of two. Addresses that differ in a few bits
    /// get different places.
    #[inline]
    pub fn place<const N: usize>(self) -> usize {
        const { assert!(N.is_power_of_two()) };
        let mixed = (self.0 ^ self.1.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 32) as usize % N
    }
}

/// A parsed Ethernet header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ethernet {
    /// Destination.
    pub dst: MacKey,
    /// Source.
    pub src: MacKey,
    /// EtherType; the one behind the tag if there is a tag.
    pub ether_type: u16,
    /// Content of the 802.1Q tag: priority, drop eligibility, VLAN.
    pub tag: Option<u16>,
}

/// Reads a frame's Ethernet header and checks the frame's length.
///
/// `head` holds the first [`HEADER`] and [`TAG`] bytes of the frame, as far as the frame is that
/// long; bytes from `len` on have no meaning.
///
/// # Errors
/// A frame with more than one tag, or with a tag other than 802.1Q, is refused: the switch would
/// not see the type behind it.
#[inline]
pub fn check(head: &[u8], len: usize) -> Result<Ethernet, DropReason> {
    let bytes: &[u8; HEADER] = head.first_chunk().filter(|_| len >= HEADER).ok_or(DropReason::Runt)?;
    let address = |at: usize| {
        let mut word = [0; 8];
        word[..6].copy_from_slice(&bytes[at..at + 6]);
        MacKey(u64::from_le_bytes(word))
    };
    let (dst, src) = (address(0), address(6));
    match u16::from_be_bytes([bytes[12], bytes[13]]) {
        TAG_8021Q => check_tagged(head, len, dst, src),
        TAG_8021AD => Err(DropReason::StackedTag),
        _ if len > MAX_FRAME => Err(DropReason::Oversize),
        ether_type => Ok(Ethernet { dst, src, ether_type, tag: None }),
    }
}

/// Reads the header of a frame with a tag.
fn check_tagged(head: &[u8], len: usize, dst: MacKey, src: MacKey) -> Result<Ethernet, DropReason> {
    let bytes: &[u8; HEADER + TAG] =
        head.first_chunk().filter(|_| len >= HEADER + TAG).ok_or(DropReason::Runt)?;
    match u16::from_be_bytes([bytes[16], bytes[17]]) {
        TAG_8021Q | TAG_8021AD => Err(DropReason::StackedTag),
        _ if len > MAX_TAGGED => Err(DropReason::Oversize),
        ether_type => {
            let tci = u16::from_be_bytes([bytes[14], bytes[15]]);
            Ok(Ethernet { dst, src, ether_type, tag: Some(tci) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(types: &[u16]) -> [u8; 60] {
        let mut frame = [0; 60];
        frame[..6].copy_from_slice(&[0x02, 0x11, 0, 0, 0, 1]);
        frame[6..12].copy_from_slice(&[0x02, 0x11, 0, 0, 0, 2]);
        for (word, at) in types.iter().zip((12..).step_by(2)) {
            frame[at..at + 2].copy_from_slice(&word.to_be_bytes());
        }
        frame
    }

    #[test]
    fn addresses_compare_like_their_text() {
        let parsed = check(&frame(&[0x0800]), 60).unwrap();
        assert_eq!(parsed.dst, MacAddr([0x02, 0x11, 0, 0, 0, 1]).into());
        assert_eq!(parsed.src, MacAddr([0x02, 0x11, 0, 0, 0, 2]).into());
        assert!(!parsed.dst.is_multicast() && MacKey::from(MacAddr::BROADCAST).is_multicast());
        for (last, reserved) in [(0, true), (0x0e, true), (0x0f, true), (0x10, false), (0x21, false)] {
            assert_eq!(MacKey::from(MacAddr([0x01, 0x80, 0xc2, 0, 0, last])).is_reserved(), reserved);
        }
        assert!(!MacKey::from(MacAddr::BROADCAST).is_reserved());
    }

    #[test]
    fn one_tag_is_parsed_and_another_refused() {
        let parsed = |types: &[u16]| check(&frame(types), 60).map(|frame| (frame.tag, frame.ether_type));
        assert_eq!(parsed(&[0x0800]), Ok((None, 0x0800)));
        assert_eq!(parsed(&[0x8100, 0xe014, 0x86dd]), Ok((Some(0xe014), 0x86dd)));
        for stacked in
            [&[0x8100, 1, 0x8100][..], &[0x8100, 1, 0x88a8], &[0x88a8, 1, 0x0800], &[0x8100, 0, 0x8100]]
        {
            assert_eq!(parsed(stacked), Err(DropReason::StackedTag));
        }
    }

    #[test]
    fn impossible_lengths_have_their_reason() {
        let (plain, tagged) = (frame(&[0x0800]), frame(&[0x8100, 5, 0x0800]));
        assert_eq!(check(&plain, 13), Err(DropReason::Runt));
        assert_eq!(check(&plain[..13], 13), Err(DropReason::Runt));
        assert_eq!(check(&tagged, 17), Err(DropReason::Runt));
        assert_eq!(check(&plain, MAX_FRAME + 1), Err(DropReason::Oversize));
        assert_eq!(check(&tagged, MAX_TAGGED + 1), Err(DropReason::Oversize));
        assert!(check(&plain, MAX_FRAME).is_ok() && check(&tagged, MAX_TAGGED).is_ok());
    }
}
