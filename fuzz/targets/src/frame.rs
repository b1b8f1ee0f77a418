//! A frame with its virtio-net header, as a guest sends it: checks, Ethernet and VLAN parsing, software offloads.
//!
//! Input: 12 bytes of virtio-net header, 1 byte of the receiver's offloads, the frame.

use std::cell::RefCell;

use taut_fabric::switch::ethernet::{self, MAX_FRAME};
use taut_fabric::switch::software_offload::{Offloads, Pieces, check_header};
use taut_virtq::device::FIRST_BYTES;
use taut_virtq::header::{self, NetHeader};

use crate::input::Input;

/// Pieces written from each end of a frame: all of them would be thousands of the same.
const ENDS: usize = 4;

thread_local! {
    static SPACE: RefCell<Vec<u8>> = RefCell::new(vec![0; MAX_FRAME]);
}

/// Runs one input.
pub fn run(data: &[u8]) {
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
    if offloads.take(&header, parsed.ether_type) {
        return;
    }
    let Ok(pieces) = Pieces::of(frame, &header) else { return };
    SPACE.with_borrow_mut(|space| check_pieces(frame, &header, &pieces, space));
}

/// Every piece is a frame that needs nothing done to it, and no longer than the frame that it was cut from.
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
