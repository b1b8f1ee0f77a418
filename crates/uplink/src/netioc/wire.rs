//! Bytes that a frame takes on the wire.

/// Preamble and start of a frame, its checksum, and the gap after it.
const AROUND: u32 = 8 + 4 + 12;
/// Shortest frame without its checksum. Shorter ones are padded.
const SHORTEST: u32 = 60;

/// Returns the bytes that a frame takes on the wire, with preamble, checksum and gap.
///
/// `bytes` is the length of the frame as the sender wrote it. A frame that is segmented on its way
/// leaves as `segments` frames, each with its own copy of the first `headers` bytes; for all
/// others, `segments` is 1 or 0. Without this count, senders of long segmented frames would get 5 %
/// more than their part.
pub fn wire_bytes(bytes: u32, segments: u32, headers: u32) -> u32 {
    let segments = segments.max(1);
    let copies = (segments - 1).saturating_mul(headers.min(bytes).saturating_add(AROUND));
    bytes.max(SHORTEST).saturating_add(AROUND).saturating_add(copies)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_frames_are_padded() {
        assert_eq!([wire_bytes(0, 1, 54), wire_bytes(60, 0, 54), wire_bytes(61, 1, 54)], [84, 84, 85]);
        assert_eq!(wire_bytes(1514, 1, 54), 1538);
    }

    #[test]
    fn a_segmented_frame_counts_as_its_segments() {
        let apart = 10 * wire_bytes(54 + 1460, 1, 54);
        assert_eq!(wire_bytes(54 + 14600, 10, 54), apart);
    }

    #[test]
    fn numbers_of_a_hostile_sender_do_not_overflow() {
        assert_eq!(wire_bytes(u32::MAX, u32::MAX, u32::MAX), u32::MAX);
        assert_eq!(wire_bytes(10, 3, u32::MAX), 84 + 2 * 34);
    }
}
