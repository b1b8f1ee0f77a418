//! 802.1Q tags: reading the VLAN from a tag, and changing the tag of a frame.

use taut_virtq::device::FIRST_BYTES;
use taut_virtq::header::{NEEDS_CSUM, NetHeader};

use super::ethernet::{HEADER, TAG, TAG_8021Q};

/// Offset of the tag in a frame: behind the two addresses.
const TAG_AT: usize = HEADER - 2;
/// The VLAN's bits in a tag; the others are priority and drop eligibility.
pub const VLAN_BITS: u16 = 0x0fff;

/// The VLAN that a tag names.
pub const fn vlan_of(tci: u16) -> u16 {
    tci & VLAN_BITS
}

/// Returns a frame with a tag of this VLAN; 0 stands for no tag. The frame has a whole Ethernet
/// header and no tag.
pub fn tagged(frame: &[u8], vlan: u16) -> Vec<u8> {
    let (addresses, behind) = frame.split_at(TAG_AT);
    let tag = [TAG_8021Q.to_be_bytes(), vlan.to_be_bytes()].concat();
    [addresses, if vlan == 0 { &[] } else { &tag }, behind].concat()
}

/// Room for a frame's first bytes with another tag.
pub type EditedStart = [u8; FIRST_BYTES + TAG];

/// A change of a frame's tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TagEdit {
    /// Leave it as it is.
    Keep,
    /// Insert a tag with this content.
    Insert(u16),
    /// Replace the content of the tag.
    Replace(u16),
    /// Remove the tag.
    Strip,
}

impl TagEdit {
    /// Writes the edited first bytes of a frame to `space` and returns them.
    ///
    /// `start` is longer than the Ethernet header with its tag, and has at most [`FIRST_BYTES`].
    pub fn start<'s>(self, start: &[u8], space: &'s mut EditedStart) -> &'s [u8] {
        let (addresses, behind) = start.split_at(TAG_AT);
        let (tci, behind) = match self {
            Self::Keep => (None, behind),
            Self::Insert(tci) => (Some(tci), behind),
            Self::Replace(tci) => (Some(tci), &behind[TAG..]),
            Self::Strip => (None, &behind[TAG..]),
        };
        space[..TAG_AT].copy_from_slice(addresses);
        let mut at = TAG_AT;
        if let Some(tci) = tci {
            space[at..at + 2].copy_from_slice(&TAG_8021Q.to_be_bytes());
            space[at + 2..at + TAG].copy_from_slice(&tci.to_be_bytes());
            at += TAG;
        }
        space[at..at + behind.len()].copy_from_slice(behind);
        &space[..at + behind.len()]
    }

    /// The virtio-net header of the edited frame: its offsets move with the tag.
    pub fn header(self, header: &NetHeader) -> NetHeader {
        let tag = TAG as u16;
        let moved = |offset: u16| match self {
            Self::Keep | Self::Replace(_) => offset,
            Self::Insert(_) => offset.saturating_add(tag),
            Self::Strip => offset.saturating_sub(tag),
        };
        let mut edited = *header;
        if header.flags & NEEDS_CSUM != 0 {
            edited.csum_start = moved(header.csum_start);
        }
        if header.hdr_len != 0 {
            edited.hdr_len = moved(header.hdr_len);
        }
        edited
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_in_the_header_move_with_the_tag() {
        let header = NetHeader {
            flags: NEEDS_CSUM,
            hdr_len: 54,
            csum_start: 34,
            csum_offset: 16,
            ..NetHeader::default()
        };
        let inserted = TagEdit::Insert(5).header(&header);
        assert_eq!((inserted.hdr_len, inserted.csum_start, inserted.csum_offset), (58, 38, 16));
        assert_eq!(TagEdit::Strip.header(&inserted), header);
        assert_eq!(TagEdit::Replace(5).header(&header), header);
        assert_eq!(TagEdit::Insert(5).header(&NetHeader::default()), NetHeader::default());
    }
}
