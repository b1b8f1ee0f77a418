//! Writes pcapng: a section with one interface, its frames, and statistics.
//!
//! The format is that of draft-ietf-opsawg-pcapng (section numbers are those of revision 02).
//! Numbers are little-endian, and times are nanoseconds since the Unix epoch.

use taut_api::fabric::DropReason;
use taut_api::fabric::capture::{Direction, Record};

/// Section header block (4.1).
const SECTION: u32 = 0x0a0d_0d0a;
/// Interface description block (4.2).
const INTERFACE: u32 = 1;
/// Interface statistics block (4.6).
const STATISTICS: u32 = 5;
/// Enhanced packet block (4.3).
const PACKET: u32 = 6;

/// First number of a section, which tells the order of bytes in all others.
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
/// Link type of Ethernet frames.
const ETHERNET: u16 = 1;
/// Resolution of times: ten to the power of minus nine seconds.
const NANOSECONDS: u8 = 9;

/// Options (3.5 and those of each block).
mod option {
    pub(super) const END: u16 = 0;
    pub(super) const COMMENT: u16 = 1;
    pub(super) const SECTION_PROGRAM: u16 = 4;
    pub(super) const INTERFACE_NAME: u16 = 2;
    pub(super) const INTERFACE_RESOLUTION: u16 = 9;
    pub(super) const PACKET_FLAGS: u16 = 2;
    pub(super) const PACKET_LOST: u16 = 4;
    pub(super) const STATISTICS_BEGIN: u16 = 2;
    pub(super) const STATISTICS_END: u16 = 3;
    pub(super) const STATISTICS_SEEN: u16 = 4;
    pub(super) const STATISTICS_LOST: u16 = 5;
    pub(super) const STATISTICS_CAPTURED: u16 = 8;
}

/// The port that is captured.
#[derive(Debug, Clone, Copy)]
pub(super) struct Interface<'a> {
    /// Name of the port.
    pub(super) name: &'a str,
    /// Remark about the port.
    pub(super) comment: &'a str,
    /// Longest part of a frame that is captured, in bytes.
    pub(super) snaplen: u32,
}

/// Numbers of a capture.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Totals {
    /// Beginning of the capture.
    pub(super) begun_ns: u64,
    /// Frames that were captured.
    pub(super) captured: u64,
    /// Frames that the capture has lost.
    pub(super) lost: u64,
}

/// Begins a section and describes its interface.
pub(super) fn begin(out: &mut Vec<u8>, interface: &Interface<'_>) {
    block(out, SECTION, |out| {
        word(out, BYTE_ORDER);
        // Version 1.0; the length of the section is not known.
        short(out, 1);
        short(out, 0);
        out.extend(u64::MAX.to_le_bytes());
        add_option(out, option::SECTION_PROGRAM, concat!("taut ", env!("CARGO_PKG_VERSION")).as_bytes());
        add_option(out, option::END, &[]);
    });
    block(out, INTERFACE, |out| {
        short(out, ETHERNET);
        short(out, 0);
        word(out, interface.snaplen);
        add_option(out, option::INTERFACE_NAME, interface.name.as_bytes());
        add_option(out, option::COMMENT, interface.comment.as_bytes());
        add_option(out, option::INTERFACE_RESOLUTION, &[NANOSECONDS]);
        add_option(out, option::END, &[]);
    });
}

/// Adds a frame, before which `lost` frames were lost since the last one.
pub(super) fn frame(out: &mut Vec<u8>, record: &Record<'_>, lost: u64) {
    let direction: u32 = match record.direction {
        Direction::Rx => 1,
        Direction::Tx => 2,
    };
    block(out, PACKET, |out| {
        word(out, 0);
        time(out, record.at_ns);
        word(out, record.bytes.len() as u32);
        word(out, record.len);
        out.extend_from_slice(record.bytes);
        pad(out);
        add_option(out, option::PACKET_FLAGS, &direction.to_le_bytes());
        if lost != 0 {
            add_option(out, option::PACKET_LOST, &lost.to_le_bytes());
        }
        if let Some(reason) = record.dropped {
            add_option(out, option::COMMENT, format!("drop: {}", drop_word(reason)).as_bytes());
        }
        add_option(out, option::END, &[]);
    });
}

/// Adds the numbers of a capture up to a time, and a remark.
pub(super) fn statistics(out: &mut Vec<u8>, at_ns: u64, totals: &Totals, comment: Option<&str>) {
    let Totals { begun_ns, captured, lost } = *totals;
    block(out, STATISTICS, |out| {
        word(out, 0);
        time(out, at_ns);
        let mut add_time = |code, at_ns| {
            let mut value = Vec::new();
            time(&mut value, at_ns);
            add_option(out, code, &value);
        };
        add_time(option::STATISTICS_BEGIN, begun_ns);
        add_time(option::STATISTICS_END, at_ns);
        add_option(out, option::STATISTICS_SEEN, &captured.saturating_add(lost).to_le_bytes());
        add_option(out, option::STATISTICS_LOST, &lost.to_le_bytes());
        add_option(out, option::STATISTICS_CAPTURED, &captured.to_le_bytes());
        if let Some(comment) = comment {
            add_option(out, option::COMMENT, comment.as_bytes());
        }
        add_option(out, option::END, &[]);
    });
}

/// Returns the word for a reason that the API's documents have.
fn drop_word(reason: DropReason) -> String {
    let word = serde_json::to_value(reason).ok();
    word.as_ref().and_then(serde_json::Value::as_str).unwrap_or_default().to_owned()
}

/// Adds a block whose content `fill` writes.
fn block(out: &mut Vec<u8>, kind: u32, fill: impl FnOnce(&mut Vec<u8>)) {
    let begin = out.len();
    word(out, kind);
    word(out, 0);
    fill(out);
    let len = (out.len() - begin + size_of::<u32>()) as u32;
    word(out, len);
    out[begin + 4..begin + 8].copy_from_slice(&len.to_le_bytes());
}

/// Adds an option. What exceeds the longest value is left out.
fn add_option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = &value[..value.len().min(usize::from(u16::MAX))];
    short(out, code);
    short(out, value.len() as u16);
    out.extend_from_slice(value);
    pad(out);
}

fn short(out: &mut Vec<u8>, number: u16) {
    out.extend(number.to_le_bytes());
}

fn word(out: &mut Vec<u8>, number: u32) {
    out.extend(number.to_le_bytes());
}

/// Adds a time: the upper half comes first.
fn time(out: &mut Vec<u8>, at_ns: u64) {
    word(out, (at_ns >> 32) as u32);
    word(out, at_ns as u32);
}

/// Fills up to a multiple of four bytes. All blocks have such a length.
fn pad(out: &mut Vec<u8>) {
    out.resize(out.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: u64 = 0x0000_0002_0000_0003;

    fn bytes(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn record(bytes: &[u8]) -> Record<'_> {
        Record { at_ns: AT, lost: 0, direction: Direction::Tx, dropped: None, len: 1514, bytes }
    }

    #[test]
    fn a_section_begins_with_its_interface() {
        let mut out = Vec::new();
        begin(&mut out, &Interface { name: "port 7", comment: "vm/web1/nic0", snaplen: 96 });
        let section = u32::from_le_bytes(out[4..8].try_into().unwrap()) as usize;
        assert_eq!(out[..4], [0x0a, 0x0d, 0x0d, 0x0a]);
        assert_eq!(out[8..24], bytes(&[0x1a2b_3c4d, 1, u32::MAX, u32::MAX]));
        assert_eq!(out[section - 4..section], out[4..8], "the length is also at the end");
        let expected = [
            bytes(&[1, 60, 1, 96]),
            vec![2, 0, 6, 0],
            b"port 7\0\0".to_vec(),
            vec![1, 0, 12, 0],
            b"vm/web1/nic0".to_vec(),
            vec![9, 0, 1, 0, 9, 0, 0, 0],
            bytes(&[0, 60]),
        ];
        assert_eq!(out[section..], expected.concat());
    }

    #[test]
    fn a_frame_has_its_direction_and_its_fate() {
        let mut out = Vec::new();
        frame(&mut out, &record(&[1, 2, 3, 4, 5]), 0);
        let expected = [
            bytes(&[6, 52, 0, 2, 3, 5, 1514]),
            vec![1, 2, 3, 4, 5, 0, 0, 0],
            vec![2, 0, 4, 0, 2, 0, 0, 0],
            bytes(&[0, 52]),
        ];
        assert_eq!(out, expected.concat());
        out.clear();
        let dropped = Record {
            direction: Direction::Rx,
            dropped: Some(DropReason::ShaperFull),
            ..record(&[1, 2, 3, 4])
        };
        frame(&mut out, &dropped, 9);
        let expected = [
            bytes(&[6, 84, 0, 2, 3, 4, 1514]),
            vec![1, 2, 3, 4],
            vec![2, 0, 4, 0, 1, 0, 0, 0],
            vec![4, 0, 8, 0, 9, 0, 0, 0, 0, 0, 0, 0],
            vec![1, 0, 17, 0],
            b"drop: shaper-full\0\0\0".to_vec(),
            bytes(&[0, 84]),
        ];
        assert_eq!(out, expected.concat());
    }

    #[test]
    fn statistics_tell_what_was_lost() {
        let mut out = Vec::new();
        let totals = Totals { begun_ns: 1 << 32, captured: 5, lost: 2 };
        statistics(&mut out, AT, &totals, Some("why"));
        let expected = [
            bytes(&[5, 96, 0, 2, 3]),
            vec![2, 0, 8, 0],
            bytes(&[1, 0]),
            vec![3, 0, 8, 0],
            bytes(&[2, 3]),
            vec![4, 0, 8, 0],
            bytes(&[7, 0]),
            vec![5, 0, 8, 0],
            bytes(&[2, 0]),
            vec![8, 0, 8, 0],
            bytes(&[5, 0]),
            vec![1, 0, 3, 0],
            b"why\0".to_vec(),
            bytes(&[0, 96]),
        ];
        assert_eq!(out, expected.concat());
    }

    #[test]
    fn any_text_and_frame_fit() {
        let mut out = Vec::new();
        let long = "x".repeat(100_000);
        begin(&mut out, &Interface { name: &long, comment: "", snaplen: 0 });
        for len in 0..9 {
            frame(&mut out, &record(&[7; 9][..len]), 0);
            assert!(out.len().is_multiple_of(4));
        }
        for reason in DropReason::ALL {
            let word = drop_word(*reason);
            assert!(!word.is_empty() && !word.contains(' '), "{reason:?}: {word}");
        }
    }
}
