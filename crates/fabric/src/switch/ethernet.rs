//! What the switch looks at in a frame: addresses and type, read once from a copy that no guest can change.

use taut_api::MacAddr;
use taut_api::fabric::DropReason;

/// Bytes of an Ethernet header.
pub const HEADER: usize = 14;
/// Longest frame that any port takes: a whole IP packet behind an Ethernet header.
pub const MAX_FRAME: usize = 65535 + HEADER;

/// IEEE 802.1Q and 802.1ad tags.
const TAG_TYPES: [u16; 2] = [0x8100, 0x88a8];

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
    /// Broadcast or multicast.
    pub const fn is_multicast(self) -> bool {
        self.0 & 1 == 1
    }
}

/// Both addresses and the type of a frame as two words, for comparing in one go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stations(u64, u64);

impl Stations {
    /// Those of a frame of at least [`HEADER`] bytes.
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
}

/// A parsed Ethernet header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ethernet {
    /// Destination.
    pub dst: MacKey,
    /// Source.
    pub src: MacKey,
    /// EtherType, or that of the outer VLAN tag.
    pub ether_type: u16,
}

impl Ethernet {
    /// Parses the start of a frame; `None` for a runt.
    #[inline]
    pub fn parse(head: &[u8]) -> Option<Self> {
        let bytes: &[u8; HEADER] = head.first_chunk()?;
        let address = |at: usize| {
            let mut word = [0; 8];
            word[..6].copy_from_slice(&bytes[at..at + 6]);
            MacKey(u64::from_le_bytes(word))
        };
        Some(Self {
            dst: address(0),
            src: address(6),
            ether_type: u16::from_be_bytes([bytes[12], bytes[13]]),
        })
    }

    /// Does the frame carry a VLAN tag?
    pub fn is_tagged(&self) -> bool {
        TAG_TYPES.contains(&self.ether_type)
    }
}

/// Parses a frame's start and checks its length.
#[inline]
pub fn check(head: &[u8], len: usize) -> Result<Ethernet, DropReason> {
    if len > MAX_FRAME {
        return Err(DropReason::Oversize);
    }
    Ethernet::parse(head).ok_or(DropReason::Runt)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_compare_like_their_text() {
        let dst = MacAddr([0x02, 0x11, 0, 0, 0, 1]);
        let src = MacAddr([0x02, 0x11, 0, 0, 0, 2]);
        let mut frame = [0; 60];
        frame[..6].copy_from_slice(&dst.0);
        frame[6..12].copy_from_slice(&src.0);
        frame[12..14].copy_from_slice(&[0x81, 0]);
        let parsed = check(&frame, 60).unwrap();
        assert_eq!((parsed.dst, parsed.src), (dst.into(), src.into()));
        assert!(parsed.is_tagged() && !parsed.dst.is_multicast());
        assert!(MacKey::from(MacAddr::BROADCAST).is_multicast());
    }

    #[test]
    fn impossible_lengths_have_their_reason() {
        assert_eq!(check(&[0; 13], 13), Err(DropReason::Runt));
        assert_eq!(check(&[0; 64], MAX_FRAME + 1), Err(DropReason::Oversize));
        assert!(check(&[0; 64], MAX_FRAME).is_ok());
    }
}
