//! A frame with its virtio-net header, as a guest or a device sends it: checks, Ethernet and VLAN
//! parsing, setting and removing tags, software offloads, large receive offload.
//!
//! Input: 12 bytes of virtio-net header, 1 byte of the receiver's offloads, the frame.

use std::cell::RefCell;

use taut_fabric::lro::{Lro, Offer};
use taut_fabric::net::ethernet::{self, HEADER, MAX_FRAME, TAG};
use taut_fabric::net::software_offload::{Offloads, Pieces, check_header};
use taut_fabric::net::vlan::TagEdit;
use taut_virtq::device::FIRST_BYTES;
use taut_virtq::header::{self, NetHeader};

use crate::input::Input;
use crate::{Budget, Target};

/// This target.
pub const TARGET: Target = Target { name: "frame", run, budget: Budget::of(100, 16) };

/// Number of pieces written from each end of a frame. All of them would be thousands of similar
/// ones.
const ENDS: usize = 4;

thread_local! {
    static SPACE: RefCell<Vec<u8>> = RefCell::new(vec![0; MAX_FRAME]);
    static LRO: RefCell<Lro> = RefCell::default();
}

fn run(data: &[u8]) {
    let mut input = Input(data);
    let bytes = input.array::<{ header::LEN }>();
    let header = NetHeader::from_bytes(&bytes);
    assert_eq!(header.to_bytes(), bytes);
    let takes = input.u8();
    let offloads = Offloads {
        checksum: takes & 1 != 0,
        tso4: takes & 2 != 0,
        tso6: takes & 4 != 0,
        ecn: takes & 8 != 0,
        uso4: takes & 16 != 0,
        uso6: takes & 32 != 0,
    };
    let frame = input.0;
    let head = &frame[..frame.len().min(FIRST_BYTES)];
    let checked = check_header(&header, frame.len()).and_then(|()| ethernet::check(head, frame.len()));
    let Ok(parsed) = checked else { return };
    edit_tags(head, parsed.tag.is_some(), &header);
    LRO.with_borrow_mut(|lro| merge(lro, frame, &header));
    if offloads.take(&header, parsed.ether_type) {
        return;
    }
    let Ok(pieces) = Pieces::of(frame, &header) else { return };
    SPACE.with_borrow_mut(|space| check_pieces(frame, &header, &pieces, space));
}

/// Checks that every edit changes the length by nothing or one tag, and leaves the rest unchanged.
fn edit_tags(head: &[u8], tagged: bool, header: &NetHeader) {
    if head.len() <= HEADER + TAG {
        return;
    }
    let edits = if tagged {
        [(TagEdit::Replace(7), 0), (TagEdit::Strip, -4)]
    } else {
        [(TagEdit::Keep, 0), (TagEdit::Insert(7), 4)]
    };
    let mut space = [0; FIRST_BYTES + TAG];
    for (edit, change) in edits {
        let edited = edit.start(head, &mut space);
        assert_eq!(edited.len(), head.len().saturating_add_signed(change));
        assert!(edited.ends_with(&head[HEADER + TAG..]));
        assert_eq!(edit.header(header).gso_size, header.gso_size);
    }
}

/// Checks that a single frame leaves unchanged, and that a frame with the next sequence number
/// leaves behind it.
fn merge(lro: &mut Lro, frame: &[u8], header: &NetHeader) {
    if lro.offer(header, frame, true) != Offer::Taken {
        assert!(lro.ready().is_none());
        return;
    }
    let l4 = if frame[12] == 0x08 { 34 } else { 54 };
    let payload = l4 + 4 * usize::from(frame[l4 + 12] >> 4);
    let mut next = frame.to_vec();
    let sequence = u32::from_be_bytes([next[l4 + 4], next[l4 + 5], next[l4 + 6], next[l4 + 7]]);
    let sequence = sequence.wrapping_add((frame.len() - payload) as u32);
    next[l4 + 4..l4 + 8].copy_from_slice(&sequence.to_be_bytes());
    let taken = lro.offer(header, &next, true) == Offer::Taken;
    lro.close();
    let merged = lro.ready().expect("a gathered frame");
    assert_eq!(merged.segments, 1 + u32::from(taken));
    if taken {
        assert!(merged.bytes.ends_with(&frame[payload..]));
        assert_eq!(merged.bytes.len() + payload, frame.len() + next.len());
    } else {
        assert_eq!(merged.bytes, frame);
    }
    lro.sent();
    assert!(lro.ready().is_none());
}

/// Checks that every piece is a complete frame without offloads, not longer than the original
/// frame.
fn check_pieces(frame: &[u8], header: &NetHeader, pieces: &Pieces<'_>, space: &mut [u8]) {
    let count = pieces.count();
    assert!((1..=frame.len()).contains(&count));
    if header.gso_type == header::GSO_NONE {
        assert_eq!(count, 1);
    }
    for index in (0..count.min(ENDS)).chain(count.saturating_sub(ENDS).max(ENDS)..count) {
        let len = pieces.write(index, space);
        assert!(len <= frame.len());
        assert_eq!(space[..14], frame[..14], "piece {index} lost its Ethernet header");
        if header.gso_type != header::GSO_NONE && index + 1 < count {
            assert!(len > usize::from(header.gso_size), "piece {index} of {count} is {len} bytes long");
        }
    }
}
